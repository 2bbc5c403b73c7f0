import type { AddressInfo } from 'node:net';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import { answerOf, renderDetail } from './refusal.ts';
import { createServer, defaultServerLimits, type ImportServer } from './server.ts';

const retryAfterSeconds = 5;

/**
 * Answers every import request with the contract's "retry later" while the service may not touch its folders: before
 * any look at a token, since the access data may be somebody else's. The routes that `addRoutes` brings (health) answer
 * as ever.
 */
export async function startClosedIngest(
  { host, port }: { readonly host: string; readonly port: number },
  addRoutes: (server: ImportServer) => void,
  logger: Logger,
): Promise<Stoppable & { readonly port: number }> {
  const { status, body } = answerOf('unavailable');
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(body.length),
    'retry-after': String(retryAfterSeconds),
    'x-error-detail': renderDetail('not stored: the service has lost its data folder'),
  };
  const server = createServer(
    defaultServerLimits,
    {
      onProtocolError: () => undefined,
      onBadUrl: (_path, _request, response) => void response.writeHead(status, headers).end(body),
    },
    logger,
  );
  addRoutes(server);
  server.addHook('onRequest', (request, reply, done) => {
    if (request.is404) void reply.code(status).headers(headers).send(body);
    done();
  });
  await server.listen({ host, port });
  return { port: (server.server.address() as AddressInfo).port, stop: () => server.close() };
}
