import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AccessReader, App } from '../access/access.ts';
import { importMethods } from '../datasets/dataset.ts';
import type { ImportMethod } from '../datasets/event-kinds.ts';
import { createBoundedLog, failureBound } from '../runtime/conditions/bounded-log.ts';
import type { Clock } from '../runtime/clock.ts';
import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import type { GroupCommit } from './group-commit.ts';
import { parseBodyLimit, parseImportRequest, tooLarge } from './import-request.ts';
import type { IngestMetrics } from './ingest-metrics.ts';
import type { RefusalLog } from './refusal-log.ts';
import { answerOf, renderDetail, type Refusal } from './refusal.ts';

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

/** Reads a body of at most `limit` bytes; keeps nothing from the first byte too many. Rejects when the client goes away. */
function readBody(request: IncomingMessage, limit: number): Promise<Buffer | Refusal> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > limit) {
        // What still comes is drained without being kept, so that the answer can be read.
        chunks.length = 0;
        resolve(tooLarge);
        return;
      }
      chunks.push(chunk);
    });
    request.once('end', () =>
      resolve(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks)),
    );
    request.once('error', reject);
    // Each request closes; an error, with its stack, is made for those alone whose client went away.
    request.once('close', () => {
      if (!request.readableEnded) reject(new Error('the client went away'));
    });
  });
}

/** Takes in one request of the app named in it, whole or not at all; undefined: every event of it is stored. */
async function importEvents(
  { access, groupCommit, clock, metrics }: RouteDependencies,
  method: ImportMethod,
  named: App,
  request: FastifyRequest,
): Promise<Refusal | undefined> {
  const view = access.current();
  const limit = parseBodyLimit(request.raw);
  if (typeof limit !== 'number') return limit;
  const body = await readBody(request.raw, limit);
  if ('reason' in body) return body;
  // A body may take half a minute to come in: what was taken back meanwhile is refused.
  const app = access.current() === view ? named : findApp(access, request);
  if ('reason' in app) return app;
  const imported = parseImportRequest({ method, head: request.raw, body, app, receivedAtMs: clock.nowMs() });
  if ('reason' in imported) return imported;

  const { kind, count, unknownParameters, lines } = imported;
  metrics.received(kind, count);
  if (unknownParameters > 0) metrics.unknownParameters(unknownParameters);
  const outcome = await groupCommit.append(lines);
  switch (outcome.state) {
    case 'stored':
      metrics.acknowledged(kind, app.idApp, count);
      return undefined;
    case 'refused':
      return { reason: 'unavailable', detail: outcome.detail };
    case 'unknown':
      return { reason: 'unknown', detail: outcome.detail };
    default:
      return outcome satisfies never;
  }
}

/** Answers a request with a refusal, counted and logged. */
type Refuse = (reply: FastifyReply, refusal: Refusal, method?: ImportMethod) => FastifyReply;

function createRefuse({ metrics, refusals }: RouteDependencies): Refuse {
  return (reply, { reason, detail }, method) => {
    const { status, body } = answerOf(reason);
    metrics.refused(reason);
    const { idApp } = reply.request.query as { idApp?: unknown };
    // What the service cannot take now is reported once, as a problem of the service (health), not once a request.
    if (status !== 500 || reason === 'internal')
      refusals.add({ reason, detail }, { method, idApp: typeof idApp === 'string' ? idApp.slice(0, 20) : undefined });
    if (status === 500) void reply.header('retry-after', retryAfterSeconds);
    return reply.code(status).header('content-type', json).header('x-error-detail', renderDetail(detail)).send(body);
  };
}

/** Adds the import area's routes and error answers to a server. Checks run in the order that docs/api.md lists. */
export function addImportRoutes(server: FastifyInstance, dependencies: RouteDependencies, version: string): void {
  const { access, metrics, logger } = dependencies;
  const failures = createBoundedLog((fields) => logger.error(fields, 'request failed'), failureBound);
  const refuse = createRefuse(dependencies);

  for (const method of importMethods.keys()) {
    server.post(`/v1/${method}`, async (request, reply) => {
      const startedMs = performance.now();
      // Before anything is awaited: what stands behind the head is not looked at for one without the right.
      const app = findApp(access, request);
      const refusal = 'reason' in app ? app : await importEvents(dependencies, method, app, request);
      metrics.answered(method, performance.now() - startedMs);
      if (refusal !== undefined) return refuse(reply, refusal, method);
      return reply.header('content-type', json).send(accepted);
    });
  }

  // Two methods that clients call beside service.md's: neither reads a body.
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
