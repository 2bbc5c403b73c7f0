import type { App } from '../access/access.ts';
import type { ImportMethod } from '../datasets/field-schema.ts';
import type { BodyPolicy, RefusalRecord } from '../refusals/refusal-record.ts';
import type { Clock } from '../runtime/clock.ts';
import { createBoundedLog, failureBound } from '../runtime/conditions/bounded-log.ts';
import { createTokenBucket, createTokenBuckets } from '../runtime/conditions/token-bucket.ts';
import { describeError } from '../runtime/errors.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { ImportRequest } from './import-request.ts';
import { describeBody, describePath, type BodyDescription } from './refusal-excerpt.ts';
import { answerOf, type Refusal } from './refusal.ts';

/** A request that was refused, of an app whose token it had. */
export interface RefusedRequest {
  readonly app: Pick<App, 'idApp' | 'platform'>;
  readonly refusal: Refusal;
  readonly head: ImportRequest['head'];
  /** Where it came to: a method, or the path where there is none. */
  readonly target: { readonly method: ImportMethod } | { readonly path: string };
  /** As it came in; undefined where it was not read whole, or was not what was wrong. */
  readonly body?: Buffer | undefined;
  /** Its size, where it is known without it. */
  readonly bytes?: number | undefined;
  readonly isValidation: boolean;
}

/**
 * Keeps what was refused, for the app's owner, so that no request waits for it and no flood of refusals costs more than
 * a little: those that are alike become one record, only so many a second become records, and only of those is found
 * out what was wrong.
 */
export interface RefusalKeeper extends Stoppable {
  add(request: RefusedRequest): void;
}

export interface RefusalKeeperDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly bodies: BodyPolicy;
  /** Takes the records of one app, each second that has some. What it throws is logged, and the records are lost. */
  readonly write: (idApp: number, records: readonly RefusalRecord[]) => Promise<void>;
}

/** The keeper where nobody keeps refusals. */
export const noRefusalKeeper: RefusalKeeper = { add: () => undefined, stop: () => Promise.resolve() };

const writeEveryMs = 1000;
/** Records of an app, and of all apps, of one process: so many at once, and so many a second. */
const appRecords = { size: 20, perSecond: 1 } as const;
const allRecords = { size: 200, perSecond: 50 } as const;
/** Records that wait to be written, of all apps: a disk may hang. */
const maxWaiting = 1000;
/** As much of a detail tells records from each other: it may hold a name of the sender's as long as a body. */
const maxKeyLength = 300;

/** What one app has to be written. */
interface Pending {
  /** By what its requests have in common. */
  readonly records: Map<string, { readonly record: RefusalRecord; requests: number }>;
  leftOut: number;
}

/** The body's part of a record. What the service could not take, or did not read, has no fault in it. */
function describe({ app, refusal, head, target, body }: RefusedRequest, bodies: BodyPolicy): BodyDescription {
  const plain = { detail: refusal.detail, faults: [] };
  if (body === undefined || !('method' in target) || answerOf(refusal.reason).status !== 400) return plain;
  try {
    return describeBody(bodies, { method: target.method, head, body, app, receivedAtMs: 0 }, refusal);
  } catch {
    // Nested so deep that it cannot be written.
    return { detail: 'the body cannot be described', faults: [] };
  }
}

/** Renders what is kept of the first of some requests. */
function createRecord(request: RefusedRequest, bodies: BodyPolicy, nowMs: number): RefusalRecord {
  const { refusal, head, target, body, bytes, isValidation } = request;
  const { status, error } = answerOf(refusal.reason);
  const { detail, faults, excerpt } = describe(request, bodies);
  return {
    time: new Date(nowMs).toISOString(),
    method: 'method' in target ? target.method : describePath(bodies, target.path),
    status,
    error,
    detail,
    faults,
    ...(excerpt === undefined ? {} : { excerpt }),
    bytes: bytes ?? body?.length ?? 0,
    hasIdempotencyKey: head.headers['idempotency-key'] !== undefined,
    isValidation,
    requests: 1,
  };
}

/** Creates the keeper of one process. */
export function createRefusalKeeper(dependencies: RefusalKeeperDependencies): RefusalKeeper {
  const { clock, bodies, write } = dependencies;
  const failures = createBoundedLog(
    (fields) => dependencies.logger.warn(fields, 'refusals of an app are not kept'),
    failureBound,
  );
  const ofApp = createTokenBuckets(appRecords.size, appRecords.perSecond);
  const ofAll = createTokenBucket(allRecords.size, allRecords.perSecond);
  let pending = new Map<number, Pending>();
  let waiting = 0;
  let timer: NodeJS.Timeout | undefined;
  let writing = Promise.resolve();

  async function writeAll(): Promise<void> {
    const taken = pending;
    pending = new Map();
    waiting = 0;
    for (const [idApp, { records, leftOut }] of taken) {
      const [first, ...rest] = [...records.values()].map(({ record, requests }) => ({ ...record, requests }));
      if (first === undefined) {
        // Said with the app's next record.
        openPending(idApp).leftOut += leftOut;
        continue;
      }
      const all = [{ ...first, ...(leftOut === 0 ? {} : { leftOut }) }, ...rest];
      await write(idApp, all).catch((error: unknown) => failures.add({ idApp, error: describeError(error) }));
    }
  }

  function openPending(idApp: number): Pending {
    const found = pending.get(idApp);
    if (found !== undefined) return found;
    const opened: Pending = { records: new Map(), leftOut: 0 };
    pending.set(idApp, opened);
    return opened;
  }

  function flush(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    return (writing = writing.then(writeAll));
  }

  return {
    add(request) {
      const { app, refusal, target, isValidation } = request;
      const ofThis = openPending(app.idApp);
      timer ??= setTimeout(() => void flush(), writeEveryMs);
      const place = 'method' in target ? target.method : target.path;
      const key = `${isValidation} ${refusal.reason} ${place} ${refusal.detail}`.slice(0, maxKeyLength);
      const alike = ofThis.records.get(key);
      if (alike !== undefined) alike.requests += 1;
      else if (waiting < maxWaiting && ofApp.take(app.idApp) && ofAll.take()) {
        ofThis.records.set(key, { record: createRecord(request, bodies, clock.nowMs()), requests: 1 });
        waiting += 1;
      } else ofThis.leftOut += 1;
    },
    stop: () => flush(),
  };
}
