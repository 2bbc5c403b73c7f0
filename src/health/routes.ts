import type { FastifyInstance } from 'fastify';
import type { ServiceView } from '../runtime/processes/role-messages.ts';

/** A server of a public port, whatever else it serves. */
export type PublicServer = FastifyInstance;

/** A supervisor that has not sent its view for this long is stuck, milliseconds. It sends it every few seconds. */
const silentAfterMs = 10_000;

/** Keeps the supervisor's view of the service; ready only while that view is fresh. */
export function createReadiness(): { update(view: ServiceView): void; isReady(): boolean } {
  let ready = false;
  let updatedAtMs = -Infinity;
  return {
    update(view) {
      ready = view.ready;
      updatedAtMs = performance.now();
    },
    isReady: () => ready && performance.now() - updatedAtMs <= silentAfterMs,
  };
}

/**
 * Adds to a public port `GET /healthz` (200 while this process answers) and `GET /readyz` (200 or 503, without a
 * reason). Neither needs authorization, for load balancers have none; what is wrong is shown on the operator's address
 * only.
 */
export function addHealthRoutes(server: PublicServer, isReady: () => boolean): void {
  server.get('/healthz', async () => ({ alive: true }));
  server.get('/readyz', async (_request, reply) => {
    const ready = isReady();
    return reply.code(ready ? 200 : 503).send({ ready });
  });
}
