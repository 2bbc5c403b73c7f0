import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AccessReader, App } from '../access/access.ts';
import { importMethods } from '../datasets/dataset.ts';
import type { KeyMask } from '../datasets/event-id.ts';
import type { ImportMethod } from '../datasets/field-schema.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Accepted, Answers } from './answers.ts';
import { findApp } from './find-app.ts';
import type { GroupCommit } from './group-commit.ts';
import type { AppendOutcome } from './waiting-room.ts';
import {
  parseBodyLimit,
  parseImportRequest,
  tooLarge,
  type ImportedLines,
  type ImportRequest,
} from './import-request.ts';
import type { IngestMetrics } from './ingest-metrics.ts';
import type { RefusalKeeper } from './refusal-keeper.ts';
import { findStatement } from './receipts.ts';
import type { Refusal } from './refusal.ts';
import { findMisspelt, listAsAsked, listFaults, wantsAllFaults } from './request-faults.ts';
import { createUsedKeys, findKeyUse } from './used-keys.ts';

/**
 * Answers the requests of the import methods, on Node's own request and response: each is so little work that the
 * framework's request, reply and promises would be as much again.
 */
export interface ImportHandler {
  /** Takes a request whose address is written in the usual form; says whether it did. The others are the framework's. */
  take(request: IncomingMessage, response: ServerResponse): boolean;
  /** Takes a request to a method; `query` holds its parameters as they are. */
  handle(method: ImportMethod, query: ImportQuery, request: IncomingMessage, response: ServerResponse): void;
}

/** The parameters of a request's address, whatever they are. */
export interface ImportQuery {
  readonly idApp?: unknown;
  /** `1`: the request is checked, and nothing is stored. */
  readonly validate?: unknown;
  readonly [unknownName: string]: unknown;
}

/** A request that could not be handled, as far as it is known. */
interface FailedRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** As its query has it. */
  readonly idApp: unknown;
  readonly method?: ImportMethod;
}

/** Answers a request that could not be handled, for a reason that is ours. */
export type Fail = (error: unknown, failed: FailedRequest) => void;

interface ImportDependencies {
  readonly access: AccessReader;
  readonly groupCommit: GroupCommit;
  readonly clock: Clock;
  readonly metrics: IngestMetrics;
  readonly answers: Answers;
  readonly refusals: RefusalKeeper;
  readonly live: LiveEvents;
  readonly keyMask?: KeyMask | undefined;
  readonly fail: Fail;
}

/** Whom the acknowledged events of an app are shown to as they arrive. */
export interface LiveEvents {
  /** Whether anybody looks at any app: nothing else is asked of a request while nobody does. */
  isWanted(): boolean;
  /** Takes the lines of a request that was acknowledged. */
  stored(idApp: number, lines: Buffer, count: number): void;
}

/** One import request on its way through. */
interface Exchange extends FailedRequest {
  readonly method: ImportMethod;
  readonly validate: unknown;
  /** Names of the query that are not parameters of imports. */
  readonly unknownQuery: readonly string[];
  readonly startedMs: number;
}

/** Parameters of an import request's address. */
const queryNames = ['idApp', 'validate'];
const validMessage = 'Valid, nothing was stored';
const keyReused: Refusal = {
  reason: 'rules',
  detail: 'the Idempotency-Key stands for another request of the last 24 hours: send this one under a new key',
};
const badValidate: Refusal = { reason: 'rules', detail: 'the parameter validate must be 0 or 1' };

/** An address in the usual form: the method, and the app as the only parameter. */
const usualAddress = /^\/v1\/([A-Za-z]+)\/?\?idApp=(\d+)$/;

/**
 * Reads a body of at most `limit` bytes and hands it on; keeps nothing from the first byte too many. Of a client that
 * goes away nothing more is heard.
 */
function readBody(request: IncomingMessage, limit: number, done: (body: Buffer | Refusal) => void): void {
  let chunks: Buffer[] = [];
  let bytes = 0;
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes <= limit) {
      chunks.push(chunk);
    } else if (bytes - chunk.length <= limit) {
      // What still comes is drained without being kept, so that the answer can be read.
      chunks = [];
      done(tooLarge);
    }
  });
  request.on('end', () => {
    if (bytes <= limit) done(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks));
  });
}

function toRefusal(outcome: Exclude<AppendOutcome, { state: 'stored' }>): Refusal {
  return { reason: outcome.state === 'refused' ? 'unavailable' : 'unknown', detail: outcome.detail };
}

/** Whose a request is, once its token suits its app, and what it brought. */
interface OfApp {
  readonly app: App;
  /** Absent where it is not what was wrong: it would hold the memory that it came in for as long as the request waits. */
  readonly body?: Buffer;
  readonly bytes?: number;
}

/** The steps of an exchange, and its two ends. */
interface Ends {
  /** Runs a step, which nothing else would answer if it threw. */
  readonly attempt: (exchange: Exchange, step: () => void) => void;
  /** Without `of` the request is nobody's, and is not kept. */
  readonly refuse: (exchange: Exchange, refusal: Refusal, of?: OfApp) => void;
  readonly accept: (exchange: Exchange, imported: ImportedLines, said?: Pick<Accepted, 'message' | 'receipt'>) => void;
}

const joinNames = (ofQuery: readonly string[], ofBody: readonly string[] = []): readonly string[] =>
  ofQuery.length === 0 ? ofBody : [...ofQuery, ...ofBody];

function createEnds({ metrics, answers, refusals, fail }: ImportDependencies): Ends {
  return {
    attempt(exchange, step) {
      try {
        step();
      } catch (error) {
        fail(error, exchange);
      }
    },
    refuse({ method, idApp, request, response, startedMs, validate, unknownQuery }, refusal, of) {
      metrics.answered(method, performance.now() - startedMs);
      const unknownNames = joinNames(unknownQuery, refusal.unknownNames);
      answers.refuse(response, listAsAsked(request, { ...refusal, unknownNames }), { method, idApp });
      if (of === undefined) return;
      const { app, body, bytes } = of;
      metrics.refusedOfApp(app.idApp);
      refusals.add({ app, body, bytes, refusal, head: request, target: { method }, isValidation: validate === '1' });
    },
    accept({ method, response, startedMs, unknownQuery }, { unknownNames }, said) {
      metrics.answered(method, performance.now() - startedMs);
      answers.accept(response, { unknownNames: joinNames(unknownQuery, unknownNames), ...said });
    },
  };
}

/** Parses a request; its refusal has everything that is wrong where the client asks for it. */
function parseRequest(request: ImportRequest): ImportedLines | Refusal {
  const imported = parseImportRequest(request);
  return 'reason' in imported && wantsAllFaults(request.head)
    ? { ...imported, all: listFaults(request, imported) }
    : imported;
}

/** Creates the handler of one server. Checks run in the order that docs/api.md lists. */
export function createImportHandler(dependencies: ImportDependencies, usedKeys = createUsedKeys()): ImportHandler {
  const { access, groupCommit, clock, metrics, live, keyMask, fail } = dependencies;
  const { attempt, refuse, accept } = createEnds(dependencies);

  function takeBody(exchange: Exchange, app: App, body: Buffer | Refusal): void {
    if ('reason' in body) return refuse(exchange, body, { app });
    const { method, request, validate } = exchange;
    const asked = { method, head: request, body, app, receivedAtMs: clock.nowMs(), keyMask };
    const imported = parseRequest(asked);
    if ('reason' in imported) return refuse(exchange, imported, { app, body });
    const keyUse = findKeyUse(imported.lines);
    if (keyUse !== undefined && usedKeys.isOfOther(keyUse, asked.receivedAtMs))
      return refuse(exchange, keyReused, { app, body });
    if (validate === '1') return accept(exchange, imported, { message: validMessage });
    const { kind, count, unknownParameters, lines } = imported;
    const of = { app, bytes: body.length };
    metrics.received(kind, count);
    if (unknownParameters > 0) metrics.unknownParameters(app.idApp, unknownParameters);
    // The key stands for this request from now on, unless it is surely not stored.
    const claimed = keyUse !== undefined && usedKeys.claim(keyUse, asked.receivedAtMs) ? keyUse : undefined;
    groupCommit.append(lines, findStatement(asked, lines)).then(
      (outcome) =>
        attempt(exchange, () => {
          if (claimed !== undefined && outcome.state === 'refused') usedKeys.release(claimed);
          if (outcome.state !== 'stored') return refuse(exchange, toRefusal(outcome), of);
          metrics.acknowledged(kind, app.idApp, count);
          if (live.isWanted()) live.stored(app.idApp, lines, count);
          accept(exchange, imported, outcome);
        }),
      (error: unknown) => fail(error, exchange),
    );
  }

  function start(exchange: Exchange): void {
    const { idApp, request, validate, unknownQuery } = exchange;
    const view = access.current();
    // Before anything is awaited: what stands behind the head is not looked at for one without the right.
    const named = findApp(access, idApp, request);
    if ('reason' in named) return refuse(exchange, named);
    // Whoever means to store nothing must not store by a slip of the pen.
    if (validate !== undefined && validate !== '0' && validate !== '1')
      return refuse(exchange, badValidate, { app: named });
    const misspelt = findMisspelt(unknownQuery, queryNames);
    if (misspelt !== undefined) return refuse(exchange, misspelt, { app: named });
    const limit = parseBodyLimit(request);
    if (typeof limit !== 'number') return refuse(exchange, limit, { app: named });
    readBody(request, limit, (body) =>
      attempt(exchange, () => {
        // It was answered already: as one that comes too slowly.
        if (request.socket.writableEnded) return;
        // A body may take half a minute to come in: what was taken back meanwhile is refused.
        const app = access.current() === view ? named : findApp(access, idApp, request);
        if ('reason' in app) refuse(exchange, app);
        else takeBody(exchange, app, body);
      }),
    );
  }

  function begin(exchange: Exchange): void {
    attempt(exchange, () => start(exchange));
  }

  return {
    handle(method, query, request, response) {
      const { idApp, validate } = query;
      const unknownQuery = Object.keys(query).filter((name) => !queryNames.includes(name));
      begin({ method, idApp, validate, unknownQuery, request, response, startedMs: performance.now() });
    },
    take(request, response) {
      const [, method = '', idApp] = (request.method === 'POST' && usualAddress.exec(request.url ?? '')) || [];
      if (!importMethods.has(method)) return false;
      const startedMs = performance.now();
      begin({ method, idApp, validate: undefined, unknownQuery: [], request, response, startedMs });
      return true;
    },
  };
}
