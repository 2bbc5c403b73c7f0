import { setTimeout as delay } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import { stopAccepting } from '../runtime/http/connections.ts';
import type { ServiceView } from '../runtime/processes/role-process.ts';

export type PublicServer = FastifyInstance;

/** Silence after which the supervisor counts as stuck, ms. It sends its view every few seconds. */
const silentAfterMs = 10_000;

export type Readiness = ReturnType<typeof createReadiness>;

/**
 * Creates the readiness of a role: the supervisor's newest view of the service. Not ready before the first one. When the
 * service drains, the role is not ready for `drainMs`, in which balancers notice. Then its ports close. Connections that
 * clients and proxies keep are served for another `drainMs`, each until its next response.
 */
export function createReadiness(drainMs: number, wait: typeof delay = delay) {
  let current: ServiceView = { ready: false };
  let updatedAtMs = -Infinity;
  let isClosing = false;
  let drained: Promise<void> | undefined;
  const servers: PublicServer[] = [];

  async function drain(): Promise<void> {
    await wait(drainMs);
    isClosing = true;
    const late = new AbortController();
    const ended = Promise.all(servers.map(({ server }) => stopAccepting(server)));
    await Promise.race([ended, wait(drainMs, undefined, { signal: late.signal })]);
    late.abort();
  }
  return {
    update(view: ServiceView): void {
      current = view;
      updatedAtMs = performance.now();
      if (view.draining === true && drainMs > 0) drained ??= drain();
    },
    /** Reports whether the role can do its work; false once the view is no longer fresh. */
    isReady: (): boolean => current.ready && performance.now() - updatedAtMs <= silentAfterMs,
    /** Adds a server that closes when the service drains. */
    add(server: PublicServer): void {
      servers.push(server);
      endConnections(server, () => isClosing);
    },
    /** Resolves when the role has drained, at once if the service does not drain. */
    drained: async (): Promise<void> => await drained,
  };
}

/** Closes each connection after its next response while `isClosing`. */
export function endConnections({ server }: PublicServer, isClosing: () => boolean): void {
  server.prependListener('request', (_request, response) => {
    if (isClosing()) response.shouldKeepAlive = false;
  });
}

/**
 * Adds `GET /healthz` (200) and `GET /readyz` (200 or 503) to a public port. Both work without authorization, for load
 * balancers, and without reasons, which only the operator's address shows.
 */
export function addHealthRoutes(server: PublicServer, readiness: Readiness): void {
  readiness.add(server);
  server.get('/healthz', async () => ({ alive: true }));
  server.get('/readyz', async (_request, reply) => {
    const ready = readiness.isReady();
    return reply.code(ready ? 200 : 503).send({ ready });
  });
}
