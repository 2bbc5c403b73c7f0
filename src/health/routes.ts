import type { FastifyInstance } from 'fastify';
import type { ServiceView } from '../runtime/processes/role-messages.ts';

/** A server of a public port, whatever else it serves. */
export type PublicServer = FastifyInstance;

/** A supervisor that has told nothing for so long is stuck, milliseconds. It tells every second. */
const silentAfterMs = 10_000;

/** Keeps what the supervisor tells, and for how long it holds. */
export function createReadiness(): { update(view: ServiceView): void; isReady(): boolean } {
  let ready = false;
  let toldAtMs = -Infinity;
  return {
    update(view) {
      ready = view.ready;
      toldAtMs = performance.now();
    },
    isReady: () => ready && performance.now() - toldAtMs <= silentAfterMs,
  };
}

/**
 * Adds to a public port `GET /healthz` (200 while this process answers) and `GET /readyz` (200 or 503, without a
 * reason). Neither needs authorization, for load balancers have none; what is wrong, and for whom, is told on the
 * operator's address only.
 */
export function addHealthRoutes(server: PublicServer, isReady: () => boolean): void {
  server.get('/healthz', async () => ({ alive: true }));
  server.get('/readyz', async (_request, reply) => {
    const ready = isReady();
    return reply.code(ready ? 200 : 503).send({ ready });
  });
}
