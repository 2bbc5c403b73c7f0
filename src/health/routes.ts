import type { FastifyInstance } from 'fastify';
import type { ServiceView } from '../runtime/processes/role-process.ts';

/** A server of a public port, whatever else it serves. */
export type PublicServer = FastifyInstance;

/** A supervisor that has not sent its view for this long is stuck, milliseconds. It sends it every few seconds. */
const silentAfterMs = 10_000;

/** The supervisor's newest view of the service. */
export interface Readiness {
  update(view: ServiceView): void;
  /** Reports whether the role can do its work; false once the view is no longer fresh. */
  isReady(): boolean;
  isDraining(): boolean;
}

/** Creates the readiness of a role, which is not ready before its first view. */
export function createReadiness(): Readiness {
  let current: ServiceView = { ready: false };
  let updatedAtMs = -Infinity;
  return {
    update(view) {
      current = view;
      updatedAtMs = performance.now();
    },
    isReady: () => current.ready && performance.now() - updatedAtMs <= silentAfterMs,
    isDraining: () => current.draining === true,
  };
}

/** Closes each connection after its next answer while the service drains: clients then find a server that stays. */
export function endConnections({ server }: PublicServer, isDraining: () => boolean): void {
  server.prependListener('request', (_request, response) => {
    if (isDraining()) response.shouldKeepAlive = false;
  });
}

/**
 * Adds to a public port `GET /healthz` (200 while this process answers) and `GET /readyz` (200 or 503, without a
 * reason). Neither needs authorization, for load balancers have none; what is wrong is shown on the operator's address
 * only.
 */
export function addHealthRoutes(server: PublicServer, readiness: Readiness): void {
  endConnections(server, () => readiness.isDraining());
  server.get('/healthz', async () => ({ alive: true }));
  server.get('/readyz', async (_request, reply) => {
    const ready = readiness.isReady();
    return reply.code(ready ? 200 : 503).send({ ready });
  });
}
