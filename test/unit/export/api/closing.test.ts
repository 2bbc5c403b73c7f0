import type { AddressInfo } from 'node:net';
import { pino } from 'pino';
import { expect, it } from 'vitest';
import { createApiServer, defaultApiServerLimits } from '../../../../src/export/api/server.ts';

it('A request that still reaches the api while it closes is answered in the envelope that clients know', async () => {
  const server = createApiServer(defaultApiServerLimits, pino({ level: 'silent' }));
  let answer: unknown;
  // Called when the server has begun to close, and still accepts connections.
  server.addHook('preClose', async () => {
    const { port } = server.server.address() as AddressInfo;
    const response = await fetch(`http://127.0.0.1:${port}/nothing`, { headers: { connection: 'close' } });
    answer = { status: response.status, body: await response.json() };
  });
  await server.listen({ host: '127.0.0.1', port: 0 });
  await server.close();
  expect(answer).toMatchObject({ status: 404, body: { code: 404, message: 'Not Found' } });
});
