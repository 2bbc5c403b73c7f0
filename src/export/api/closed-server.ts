import type { AddressInfo } from 'node:net';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import type { Logger } from '../../runtime/logger.ts';
import { createApiServer, defaultApiServerLimits, type ApiServer } from './server.ts';

const retryAfterSeconds = 5;

/**
 * Serves the api port while the service may not touch its folders: the routes that `addRoutes` brings (health), and a
 * 500 for everything else, with Retry-After. No request or report file is read.
 */
export async function startClosedExport(
  { host, port }: { readonly host: string; readonly port: number },
  addRoutes: (server: ApiServer) => void,
  logger: Logger,
): Promise<Stoppable & { readonly port: number }> {
  const server = createApiServer(defaultApiServerLimits, logger, { code: 500, retryAfterSeconds });
  addRoutes(server);
  await server.listen({ host, port });
  return { port: (server.server.address() as AddressInfo).port, stop: () => server.close() };
}
