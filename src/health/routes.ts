import type { FastifyInstance } from 'fastify';
import type { ServiceView } from '../runtime/processes/role-process.ts';

/** The server of a public port. */
export type PublicServer = FastifyInstance;

/** Silence after which the supervisor counts as stuck, ms. It sends its view every few seconds. */
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
