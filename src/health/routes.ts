import type { FastifyInstance } from 'fastify';
import { renderMetrics } from '../runtime/metrics.ts';
import type { ServiceState } from '../runtime/service-state.ts';
import { findProblems } from './health.ts';

/** What the supervisor sends to the process that serves these routes; undefined until the first message. */
export interface ServiceView extends Pick<ServiceState, 'processes' | 'facts' | 'silentMs' | 'writtenAt'> {
  readonly metrics: unknown[][];
}

/**
 * Adds `GET /healthz` (200 while this process answers), `GET /readyz` (200, or 503 with what is wrong and what to do) and
 * `GET /metrics` (Prometheus text). None needs authorization; none shows an event, a user or a secret.
 */
export function addHealthRoutes(server: FastifyInstance, view: () => ServiceView | undefined, clock: { nowMs(): number }): void {
  server.get('/healthz', async () => ({ alive: true }));

  server.get('/readyz', async (_request, reply) => {
    const seen = view();
    const problems =
      seen === undefined ? [{ what: 'the supervisor has not reported yet', todo: 'Ask again in a second.' }] : findProblems(seen, clock.nowMs());
    return reply.code(problems.length === 0 ? 200 : 503).send({ ready: problems.length === 0, problems });
  });

  server.get('/metrics', async (_request, reply) => {
    const { contentType, body } = await renderMetrics(view()?.metrics ?? []);
    return reply.type(contentType).send(body);
  });
}
