import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AccessReader, App } from '../access/access.ts';
import { importMethods } from '../datasets/dataset.ts';
import type { KeyMask } from '../datasets/event-id.ts';
import type { ImportMethod } from '../datasets/field-schema.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Span, Tracing } from '../runtime/tracing/tracing.ts';
import type { Accepted, ImportResponses } from './responses.ts';
import { findApp } from './find-app.ts';
import type { GroupCommit } from './group-commit.ts';
import {
  parseBodyLimit,
  parseImportRequest,
  tooLarge,
  type ImportedLines,
  type ImportRequest,
} from './import-request.ts';
import { endAcceptedSpan, endRefusedSpan, startImportSpan } from './import-spans.ts';
import type { IngestMetrics } from './ingest-metrics.ts';
import type { RefusalRecorder } from './refusal-recorder.ts';
import { createStatementIfRequested } from './receipts.ts';
import type { Refusal } from './refusal.ts';
import {
  findMisspelledParameter,
  listErrorsIfRequested,
  listRequestErrors,
  prefersAllErrors,
} from './validation-errors.ts';
import { createUsedKeys, findKeyUse } from './used-keys.ts';

/** The parameters of a request's address, unchecked. */
export interface ImportQuery {
  readonly idApp?: unknown;
  /** `1`: the request is checked and not stored. */
  readonly validate?: unknown;
  readonly [unknownName: string]: unknown;
}

/** A request that failed inside the service, as far as it is known. */
interface FailedRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly idApp: unknown;
  readonly method?: ImportMethod;
  /** Absent unless the request is traced. */
  span?: Span | undefined;
}

/** Answers a request that failed inside the service. */
export type Fail = (error: unknown, failed: FailedRequest) => void;

/** Shows the acknowledged events of apps as they arrive. */
export interface LiveEvents {
  /** Reports whether there are viewers of any app: otherwise nothing more is asked per request. */
  isWanted(): boolean;
  stored(idApp: number, lines: Buffer, count: number): void;
}

interface ImportDependencies {
  readonly access: AccessReader;
  readonly groupCommit: GroupCommit;
  readonly clock: Clock;
  readonly metrics: IngestMetrics;
  readonly importResponses: ImportResponses;
  readonly refusals: RefusalRecorder;
  readonly live: LiveEvents;
  readonly keyMask?: KeyMask | undefined;
  /** Absent without a collector of traces. */
  readonly tracing?: Tracing | undefined;
  readonly fail: Fail;
}

/** An import request in progress. */
interface Exchange extends FailedRequest {
  readonly method: ImportMethod;
  readonly validate: unknown;
  /** Names of the query that are not parameters of imports. */
  readonly unknownQuery: readonly string[];
  readonly startedMs: number;
}

const queryNames = ['idApp', 'validate'];
const validMessage = 'Valid, nothing was stored';
const keyReused: Refusal = {
  reason: 'rules',
  detail: 'the Idempotency-Key was used for another request within 24 hours; use a new key',
};
const badValidate: Refusal = { reason: 'rules', detail: 'the parameter validate must be 0 or 1' };

/** An address in the usual form: the method, and the app as the only parameter. */
const usualAddress = /^\/v1\/([A-Za-z]+)\/?\?idApp=(\d+)$/;

/** Reads a body of at most `limit` bytes; keeps nothing of a larger one. No callback if the client disconnects. */
export function readBody(request: IncomingMessage, limit: number, done: (body: Buffer | Refusal) => void): void {
  let chunks: Buffer[] = [];
  let bytes = 0;
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes <= limit) {
      chunks.push(chunk);
    } else if (bytes - chunk.length <= limit) {
      // The rest is drained, so that the client can read the response.
      chunks = [];
      done(tooLarge);
    }
  });
  request.on('end', () => {
    if (bytes <= limit) done(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks));
  });
}

/** The app of a request whose token matches it, and what of its body a refusal is about. */
interface OfApp {
  readonly app: App;
  /** Absent if the fault is elsewhere: it would use memory for as long as the request waits. */
  readonly body?: Buffer;
  readonly bytes?: number;
}

const joinNames = (ofQuery: readonly string[], ofBody: readonly string[] = []): readonly string[] =>
  ofQuery.length === 0 ? ofBody : [...ofQuery, ...ofBody];

/** Parses a request; the refusal lists every fault if the client asks for it. */
function parseRequest(request: ImportRequest): ImportedLines | Refusal {
  const imported = parseImportRequest(request);
  return 'reason' in imported && prefersAllErrors(request.head)
    ? { ...imported, all: listRequestErrors(request, imported) }
    : imported;
}

function createEnds({ metrics, importResponses, refusals, fail }: ImportDependencies) {
  function attempt(exchange: Exchange, step: () => void): void {
    try {
      step();
    } catch (error) {
      fail(error, exchange);
    }
  }

  /** Without `of` the request is nobody's, and not kept. */
  function refuse(exchange: Exchange, refusal: Refusal, of?: OfApp): void {
    const { method, idApp, request, response, startedMs, validate, unknownQuery } = exchange;
    metrics.answered(method, performance.now() - startedMs);
    endRefusedSpan(exchange.span, refusal, of?.app);
    const unknownNames = joinNames(unknownQuery, refusal.unknownNames);
    importResponses.refuse(response, listErrorsIfRequested(request, { ...refusal, unknownNames }), { method, idApp });
    if (of === undefined) return;
    const { app, body, bytes } = of;
    metrics.refusedOfApp(app.idApp);
    refusals.add({ app, body, bytes, refusal, head: request, target: { method }, isValidation: validate === '1' });
  }

  function accept(
    { method, idApp, response, startedMs, unknownQuery, span }: Exchange,
    { unknownNames, kind, count }: ImportedLines,
    said: Pick<Accepted, 'message' | 'receipt'>,
  ): void {
    metrics.answered(method, performance.now() - startedMs);
    if (span !== undefined) endAcceptedSpan(span, { idApp: Number(idApp), kind, count });
    importResponses.accept(response, { unknownNames: joinNames(unknownQuery, unknownNames), ...said });
  }

  return { attempt, refuse, accept };
}

export type ImportHandler = ReturnType<typeof createImportHandler>;

/** Creates the import handler on Node's own objects: the framework would double the work. Checks: see docs/api.md. */
export function createImportHandler(dependencies: ImportDependencies) {
  const { access, groupCommit, clock, metrics, live, keyMask, tracing, fail } = dependencies;
  const { attempt, refuse, accept } = createEnds(dependencies);
  const usedKeys = createUsedKeys();

  function importBody(exchange: Exchange, app: App, body: Buffer | Refusal): void {
    const { method, request, validate, span } = exchange;
    if ('reason' in body) return refuse(exchange, body, { app });
    const importRequest = { method, head: request, body, app, receivedAtMs: clock.nowMs(), keyMask };
    const imported = parseRequest(importRequest);
    if ('reason' in imported) return refuse(exchange, imported, { app, body });
    const keyUse = findKeyUse(imported.lines);
    if (keyUse !== undefined && usedKeys.isOfOther(keyUse, importRequest.receivedAtMs))
      return refuse(exchange, keyReused, { app, body });
    if (validate === '1') return accept(exchange, imported, { message: validMessage });
    const { kind, count, unknownParameters, lines } = imported;
    const of = { app, bytes: body.length };
    metrics.received(kind, count);
    if (unknownParameters > 0) metrics.unknownParameters(app.idApp, unknownParameters);
    // From now on the key stands for this request, unless it is surely not stored.
    const claimed = keyUse !== undefined && usedKeys.claim(keyUse, importRequest.receivedAtMs) ? keyUse : undefined;
    groupCommit.append(lines, createStatementIfRequested(importRequest, lines), span).then(
      (outcome) =>
        attempt(exchange, () => {
          if (claimed !== undefined && outcome.state === 'refused') usedKeys.release(claimed);
          if (outcome.state !== 'stored') {
            const reason = outcome.state === 'refused' ? 'unavailable' : 'unknown';
            return refuse(exchange, { reason, detail: outcome.detail }, of);
          }
          metrics.acknowledged(kind, app.idApp, count);
          if (live.isWanted()) live.stored(app.idApp, lines, count);
          accept(exchange, imported, outcome);
        }),
      (error: unknown) => fail(error, exchange),
    );
  }

  function start(exchange: Exchange): void {
    if (tracing !== undefined) exchange.span = startImportSpan(tracing, exchange);
    const { idApp, request, validate, unknownQuery } = exchange;
    const view = access.current();
    // Before anything is awaited: the body of a request without the right is not checked.
    const named = findApp(access, idApp, request);
    if ('reason' in named) return refuse(exchange, named);
    // A client that means to store nothing must not store because of a typing error.
    if (validate !== undefined && validate !== '0' && validate !== '1')
      return refuse(exchange, badValidate, { app: named });
    const misspelt = findMisspelledParameter(unknownQuery, queryNames);
    if (misspelt !== undefined) return refuse(exchange, misspelt, { app: named });
    const limit = parseBodyLimit(request);
    if (typeof limit !== 'number') return refuse(exchange, limit, { app: named });
    readBody(request, limit, (body) =>
      attempt(exchange, () => {
        // Answered already, because it came too slowly.
        if (request.socket.writableEnded) return;
        // A body may take half a minute: a token that was revoked meanwhile is refused.
        const app = access.current() === view ? named : findApp(access, idApp, request);
        if ('reason' in app) refuse(exchange, app);
        else importBody(exchange, app, body);
      }),
    );
  }

  const begin = (exchange: Exchange): void => attempt(exchange, () => start(exchange));
  return {
    handle(method: ImportMethod, query: ImportQuery, request: IncomingMessage, response: ServerResponse): void {
      const { idApp, validate } = query;
      const unknownQuery = Object.keys(query).filter((name) => !queryNames.includes(name));
      begin({ method, idApp, validate, unknownQuery, request, response, startedMs: performance.now() });
    },
    /** Handles a request whose address has the usual form; reports whether it did. The framework takes the others. */
    take(request: IncomingMessage, response: ServerResponse): boolean {
      const [, method = '', idApp] = (request.method === 'POST' && usualAddress.exec(request.url ?? '')) || [];
      if (!importMethods.has(method)) return false;
      begin({ method, idApp, validate: undefined, unknownQuery: [], request, response, startedMs: performance.now() });
      return true;
    },
  };
}
