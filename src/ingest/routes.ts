import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AccessReader, App } from '../access/access.ts';
import { importMethods, type ImportMethod } from '../datasets/event-kinds.ts';
import { createBoundedLog, failureBound } from '../runtime/conditions/bounded-log.ts';
import type { Clock } from '../runtime/clock.ts';
import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { keyedEventIds, plainEventIds, type EventIds } from '../datasets/event-id.ts';
import type { GroupCommit } from './group-commit.ts';
import { maxKeyLength } from './limits.ts';
import type { IngestMetrics } from './ingest-metrics.ts';
import { parseBody } from './parse-body.ts';
import { parseEvents, type ParsedEvents } from './parse-events.ts';
import { readBody } from './read-body.ts';
import type { RefusalLog } from './refusal-log.ts';
import { answerOf, renderDetail, type Refusal } from './refusal.ts';
import { renderGiven, renderLine } from '../datasets/event-line.ts';

export interface RouteDependencies {
  readonly access: AccessReader;
  readonly groupCommit: GroupCommit;
  readonly clock: Clock;
  readonly metrics: IngestMetrics;
  readonly refusals: RefusalLog;
  readonly logger: Logger;
}

/** The text of service.md's confirmation. */
const accepted = JSON.stringify({ message: 'Ok' });
const json = 'application/json; charset=utf-8';
const retryAfterSeconds = 1;

/** The version segment of an import path. */
const versionSegment = /^\/(v\d[^/?]*)(?:[/?]|$)/i;

/** What a path that no route has is answered with: the version is checked before the method. */
export function refusePath(path: string): Refusal {
  const version = versionSegment.exec(path)?.[1];
  if (version !== undefined && version !== 'v1') return { reason: 'version', detail: 'the API version must be v1' };
  return { reason: 'method', detail: 'no such method' };
}

/** The app that a request is for, when its token suits it. Neither says which of the two was wrong. */
function findApp(access: AccessReader, request: FastifyRequest): App | Refusal {
  const { idApp } = request.query as { idApp?: unknown };
  const token = request.headers.authorization;
  const isNamed = typeof idApp === 'string' && /^[1-9]\d{0,15}$/.test(idApp) && token !== undefined && token !== '';
  const app = isNamed ? access.current().findAppByToken(Number(idApp), token) : undefined;
  // A client that is told that its token is wrong drops its events.
  if (app === undefined && isNamed && access.mayLackApps())
    return { reason: 'unavailable', detail: 'not stored: the access data of the service cannot be read' };
  return app ?? { reason: 'token', detail: 'the token does not suit the app named by idApp' };
}

/** How event ids are made for a request: from its Idempotency-Key when it has one. */
function chooseIds(
  request: FastifyRequest,
  method: ImportMethod,
  app: App,
  { kind, events }: ParsedEvents,
  receivedAtMs: number,
): EventIds | Refusal {
  const key = request.headers['idempotency-key'];
  if (key === undefined) return plainEventIds(receivedAtMs);
  // Node joins the values of several headers, which would make a third key of two.
  if (
    typeof key === 'string' &&
    key.includes(',') &&
    (request.raw.headersDistinct['idempotency-key']?.length ?? 0) > 1
  ) {
    return { reason: 'rules', detail: 'Idempotency-Key must be given once' };
  }
  if (typeof key !== 'string' || key === '' || key.length > maxKeyLength) {
    return { reason: 'rules', detail: `Idempotency-Key must have 1 to ${maxKeyLength} characters` };
  }
  return keyedEventIds({
    idApp: app.idApp,
    key,
    method,
    given: events.map((fields) => renderGiven(kind, app.platform, fields)),
  });
}

/** Adds the import area's routes and error answers to a server. Checks run in the order that docs/api.md lists. */
export function addImportRoutes(server: FastifyInstance, dependencies: RouteDependencies, version: string): void {
  const { access, groupCommit, clock, metrics, refusals, logger } = dependencies;
  const failures = createBoundedLog((fields) => logger.error(fields, 'request failed'), failureBound);

  function refuse(reply: FastifyReply, refusal: Refusal, method?: ImportMethod): FastifyReply {
    const { status, body } = answerOf(refusal.reason);
    metrics.refused(refusal.reason);
    const { idApp } = reply.request.query as { idApp?: unknown };
    // What the service cannot take now is told once, as a problem of the service (health), not once a request.
    if (status !== 500 || refusal.reason === 'internal')
      refusals.add(refusal, { method, idApp: typeof idApp === 'string' ? idApp.slice(0, 20) : undefined });
    if (status === 500) void reply.header('retry-after', retryAfterSeconds);
    return reply
      .code(status)
      .header('content-type', json)
      .header('x-error-detail', renderDetail(refusal.detail))
      .send(body);
  }

  async function importEvents(method: ImportMethod, app: App, request: FastifyRequest): Promise<Refusal | undefined> {
    const view = access.current();
    const body = await readBody(request.raw);
    if ('reason' in body) return body;
    // A body may take half a minute to come in: what was taken back meanwhile is refused.
    const still = access.current() === view ? app : findApp(access, request);
    if ('reason' in still) return still;
    const parsed = parseBody(body);
    if ('reason' in parsed) return parsed;
    const events = parseEvents(method, app, parsed.value);
    if ('reason' in events) return events;
    const receivedAtMs = clock.nowMs();
    const ids = chooseIds(request, method, app, events, receivedAtMs);
    if (typeof ids !== 'function') return ids;

    const { kind } = events;
    metrics.received(kind, events.events.length);
    if (events.unknownParameters > 0) metrics.unknownParameters(events.unknownParameters);
    const context = { kind, idApp: app.idApp, platform: app.platform, receivedAtMs, ids };
    const lines = Buffer.from(events.events.map((fields, index) => renderLine(context, fields, index)).join(''));

    const outcome = await groupCommit.append(lines);
    switch (outcome.state) {
      case 'stored':
        metrics.acknowledged(kind, app.idApp, events.events.length);
        return undefined;
      case 'refused':
        return { reason: 'unavailable', detail: outcome.detail };
      case 'unknown':
        return { reason: 'unknown', detail: outcome.detail };
      default:
        return outcome satisfies never;
    }
  }

  for (const method of importMethods.keys()) {
    server.post(`/v1/${method}`, async (request, reply) => {
      const startedMs = performance.now();
      const app = findApp(access, request);
      const refusal = 'reason' in app ? app : await importEvents(method, app, request);
      metrics.answered(method, performance.now() - startedMs);
      if (refusal !== undefined) return refuse(reply, refusal, method);
      return reply.header('content-type', json).send(accepted);
    });
  }

  // Two methods that clients call beside service.md's: neither looks at a body.
  server.post('/v1/version', (_request, reply) => reply.header('content-type', json).send(JSON.stringify({ version })));
  server.post('/v1/test-app-access', (request, reply) => {
    const app = findApp(access, request);
    return 'reason' in app ? refuse(reply, app) : reply.header('content-type', json).send(accepted);
  });

  server.setNotFoundHandler((request, reply) => refuse(reply, refusePath(request.url)));
  server.setErrorHandler((error, request, reply) => {
    if (request.raw.destroyed && !request.raw.complete) return reply.send();
    failures.add({
      error: describeError(error),
      method: request.method,
      path: request.url.split('?')[0]?.slice(0, 200),
    });
    return refuse(reply, { reason: 'internal', detail: 'internal error' });
  });
}
