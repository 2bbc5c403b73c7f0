import { Agent, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import fastify from 'fastify';
import { expect, onTestFinished, test } from 'vitest';
import { addHealthRoutes, createReadiness } from '../../../src/ops/routes.ts';

/** Starts a server whose role drains, and a client that keeps its connection. */
async function startDraining(wait: NonNullable<Parameters<typeof createReadiness>[1]>) {
  const readiness = createReadiness(1000, wait);
  const server = fastify();
  onTestFinished(() => server.close());
  addHealthRoutes(server, readiness);
  await server.listen({ port: 0, host: '127.0.0.1' });
  const { port } = server.server.address() as AddressInfo;
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  const ask = (): Promise<unknown> =>
    new Promise((resolve, reject) => {
      const call = request({ port, path: '/healthz', agent }, (response) => {
        response.resume().once('end', () => resolve([response.statusCode, response.headers.connection]));
      });
      call.once('error', reject).end();
    });
  expect(await ask()).toEqual([200, 'keep-alive']);
  readiness.update({ ready: false, draining: true });
  return { server, readiness, ask };
}

test('A role has drained as soon as each kept connection has had its last response', async () => {
  const waits: number[] = [];
  const { server, readiness, ask } = await startDraining((ms = 0) => {
    waits.push(ms);
    // The second wait never ends.
    return waits.length === 1 ? Promise.resolve(undefined as never) : new Promise(() => undefined);
  });
  await expect.poll(() => server.server.listening).toBe(false);
  expect(await ask()).toEqual([200, 'close']);
  await readiness.drained();
  expect(waits).toEqual([1000, 1000]);
});

test('A role with a kept connection has drained after the time of the setting', async () => {
  const { server, readiness } = await startDraining(() => Promise.resolve(undefined as never));
  await readiness.drained();
  expect(server.server.listening).toBe(false);
});
