import type { FastifyInstance } from 'fastify';
import type { ServiceView } from '../runtime/processes/role-process.ts';

export type PublicServer = FastifyInstance;

/** Silence after which the supervisor counts as stuck, ms. It sends its view every few seconds. */
const silentAfterMs = 10_000;

export type Readiness = ReturnType<typeof createReadiness>;

/** Creates the readiness of a role: the supervisor's newest view of the service. Not ready before the first one. */
export function createReadiness() {
  let current: ServiceView = { ready: false };
  let updatedAtMs = -Infinity;
  return {
    update(view: ServiceView): void {
      current = view;
      updatedAtMs = performance.now();
    },
    /** Reports whether the role can do its work; false once the view is no longer fresh. */
    isReady: (): boolean => current.ready && performance.now() - updatedAtMs <= silentAfterMs,
    isDraining: (): boolean => current.draining === true,
  };
}

/** Closes each connection after its next response while the service drains. */
export function endConnections({ server }: PublicServer, isDraining: () => boolean): void {
  server.prependListener('request', (_request, response) => {
    if (isDraining()) response.shouldKeepAlive = false;
  });
}

/**
 * Adds `GET /healthz` (200) and `GET /readyz` (200 or 503) to a public port. Both work without authorization, for load
 * balancers, and without reasons, which only the operator's address shows.
 */
export function addHealthRoutes(server: PublicServer, readiness: Readiness): void {
  endConnections(server, () => readiness.isDraining());
  server.get('/healthz', async () => ({ alive: true }));
  server.get('/readyz', async (_request, reply) => {
    const ready = readiness.isReady();
    return reply.code(ready ? 200 : 503).send({ ready });
  });
}
