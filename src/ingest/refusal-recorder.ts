import { isRecord } from '../runtime/files/checksummed-json.ts';
import type { App } from '../access/access.ts';
import type { ImportMethod } from '../datasets/field-schema.ts';
import type { BodyPolicy, RefusalRecord, RefusalFault } from '../refusals/refusal-files.ts';
import type { Clock } from '../runtime/clock.ts';
import { createTokenBuckets } from '../runtime/async/rate-limits.ts';
import { createRateLimitedLog, failureBound } from '../runtime/problems/rate-limited-log.ts';
import { describeError } from '../runtime/errors.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import { type ImportRequest, decodeBody, readEvents } from './import-request.ts';
import { answerOf, type Refusal } from './refusal.ts';
import { eventFields } from '../datasets/event-fields.ts';
import { getMethod } from '../datasets/dataset.ts';
import { listRequestErrors, toValidationError } from './validation-errors.ts';

interface BodyDescription {
  readonly detail: string;
  readonly validationErrors: readonly RefusalFault[];
  readonly excerpt?: string;
}

const maxExcerptLength = 500;
const maxTextLength = 200;
const maxPathLength = 100;
const maxFaults = 10;
const knownNames: ReadonlySet<string> = new Set(eventFields.map(({ name }) => name));

/** Replaces names of a pointer that no schema knows: they are the sender's own. */
function redactPointer(pointer: string): string {
  return pointer
    .split('/')
    .map((part) => (part === '' || knownNames.has(part) || /^\d{1,2}$/.test(part) ? part : '*'))
    .join('/');
}

/** Describes a refusal for the service's log, whose readers may not see what the owner of the app may. */
export function describeForLog({ validationError, detail }: Refusal): string {
  return validationError === undefined || validationError.pointer === ''
    ? detail
    : `${redactPointer(validationError.pointer)} ${validationError.reason}`;
}

/** Replaces the parts of a path that may be ids: all but the version and a possible method name. */
function redactPath(path: string): string {
  const parts = path.split('/');
  const methodAt = /^v\d{1,3}$/i.test(parts[1] ?? '') ? 2 : 1;
  const isShown = (part: string, at: number): boolean =>
    part === '' || at < methodAt || (at === methodAt && /^[A-Za-z_-]{1,40}$/.test(part));
  return parts.map((part, at) => (isShown(part, at) ? part : '*')).join('/');
}

function redactValue(value: unknown, isNested: boolean): unknown {
  if (value === null) return null;
  if (typeof value === 'string') return `<text of ${value.length}>`;
  if (typeof value !== 'object') return `<${typeof value}>`;
  if (Array.isArray(value)) return `<list of ${value.length}>`;
  const entries = Object.entries(value);
  if (isNested) return `<object of ${entries.length}>`;
  const known = entries.filter(([name]) => knownNames.has(name));
  const unknown = entries.length - known.length;
  return {
    ...Object.fromEntries(known.map(([name, member]) => [name, redactValue(member, true)])),
    ...(unknown === 0 ? {} : { '<unknown>': unknown }),
  };
}

function truncate(text: string, maxLength: number): string {
  return (text.length <= maxLength ? text : `${text.slice(0, maxLength)}...`).toWellFormed();
}

/** Renders an event as JSON; of a long one only the faulty member. */
function renderEvent(event: unknown, name: string | undefined): string {
  const text = JSON.stringify(event);
  const isMember = name !== undefined && isRecord(event) && Object.hasOwn(event, name);
  if (text.length <= maxExcerptLength || !isMember) return truncate(text, maxExcerptLength);
  return truncate(JSON.stringify({ [name]: event[name] }), maxExcerptLength);
}

/** Renders the event with the fault, or the beginning of a body that is not a list of events. */
function renderExcerpt(policy: BodyPolicy, request: ImportRequest, pointer: string): string | undefined {
  const values = readEvents(request);
  if ('reason' in values) {
    const body = policy === 'on' ? decodeBody(request) : undefined;
    return body === undefined || 'reason' in body
      ? undefined
      : truncate(body.toString('utf8', 0, 4 * maxExcerptLength), maxExcerptLength);
  }
  const parts = pointer.split('/').slice(1);
  const index = getMethod(request.method).batch ? Number(parts.shift() ?? 0) : 0;
  const value = values[index];
  return value === undefined ? undefined : renderEvent(policy === 'on' ? value : redactValue(value, false), parts[0]);
}

/** Describes the faults of a request, as far as the policy shows its body. */
function describeBody(policy: BodyPolicy, request: ImportRequest, refusal: Refusal): BodyDescription {
  const found = listRequestErrors(request, refusal).listed.slice(0, maxFaults);
  const showPointer = (pointer: string, maxLength = maxTextLength): string =>
    truncate(policy === 'on' ? pointer : redactPointer(pointer), maxLength);
  const validationErrors = found.map((validationError) => ({
    ...validationError,
    pointer: showPointer(validationError.pointer),
    reason: truncate(validationError.reason, maxTextLength),
  }));
  const { pointer, reason } = toValidationError(refusal);
  // A detail that begins with a pointer is rendered again with the shown one. Of a long one the rule stays.
  const detail =
    pointer === ''
      ? refusal.detail
      : `${showPointer(pointer, Math.max(0, maxTextLength - reason.length - 4))} ${reason}`;
  const excerpt = policy === 'off' ? undefined : renderExcerpt(policy, request, pointer);
  return { detail: truncate(detail, maxTextLength), validationErrors, ...(excerpt === undefined ? {} : { excerpt }) };
}

export interface RefusedRequest {
  readonly app: Pick<App, 'idApp' | 'platform'>;
  readonly refusal: Refusal;
  readonly head: ImportRequest['head'];
  /** The method, or the path of a request to none. */
  readonly target: { readonly method: ImportMethod } | { readonly path: string };
  /** Undefined if it was not read whole, or if the fault is elsewhere. */
  readonly body?: Buffer | undefined;
  readonly bytes?: number | undefined;
  readonly isValidation: boolean;
}

export interface RefusalRecorder extends Stoppable {
  add(request: RefusedRequest): void;
}

interface RefusalKeeperDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly bodies: BodyPolicy;
  /** Writes the records of one app, at most once a second. Errors are logged, and the records are lost. */
  readonly write: (idApp: number, records: readonly RefusalRecord[]) => Promise<void>;
}

export const noRefusalRecorder: RefusalRecorder = { add: () => undefined, stop: () => Promise.resolve() };

const writeEveryMs = 1000;
/** Limits the records of an app, and of all apps, of one process. */
const appRecords = { size: 20, perSecond: 1 } as const;
const allRecords = { size: 200, perSecond: 50 } as const;
/** Limits the records that wait to be written: a disk may hang. */
const maxWaiting = 1000;
/** Limits the part of a detail that distinguishes records: a sender's name in it may be as long as a body. */
const maxKeyLength = 300;

interface Pending {
  readonly records: Map<string, { readonly record: RefusalRecord; requests: number }>;
  requestsNotRecorded: number;
}

/** Describes the body of a record; without faults if the service could not take it or did not read it. */
function describe({ app, refusal, head, target, body }: RefusedRequest, bodies: BodyPolicy): BodyDescription {
  const plain = { detail: refusal.detail, validationErrors: [] };
  if (body === undefined || !('method' in target) || answerOf(refusal.reason).status !== 400) return plain;
  try {
    return describeBody(bodies, { method: target.method, head, body, app, receivedAtMs: 0 }, refusal);
  } catch {
    // Nested too deep to be rendered.
    return { detail: 'the body cannot be described', validationErrors: [] };
  }
}

function createRecord(request: RefusedRequest, bodies: BodyPolicy, nowMs: number): RefusalRecord {
  const { refusal, head, target, body, bytes, isValidation } = request;
  const { status, error } = answerOf(refusal.reason);
  const { detail, validationErrors: errors, excerpt } = describe(request, bodies);
  return {
    time: new Date(nowMs).toISOString(),
    method:
      'method' in target
        ? target.method
        : truncate(bodies === 'on' ? target.path : redactPath(target.path), maxPathLength),
    status,
    error,
    detail,
    errors,
    ...(excerpt === undefined ? {} : { excerpt }),
    bytes: bytes ?? body?.length ?? 0,
    hasIdempotencyKey: head.headers['idempotency-key'] !== undefined,
    isValidation,
    requests: 1,
  };
}

/**
 * Creates the keeper of one process: it records refusals for the owners of apps. No request waits for it. A flood costs
 * little: similar refusals become one record, and the records per second are limited.
 */
export function createRefusalRecorder(dependencies: RefusalKeeperDependencies): RefusalRecorder {
  const { clock, bodies, write } = dependencies;
  const failures = createRateLimitedLog(
    (fields) => dependencies.logger.warn(fields, 'cannot keep all refusals of an app'),
    failureBound,
  );
  const ofApp = createTokenBuckets(appRecords.size, appRecords.perSecond);
  const ofAll = createTokenBuckets(allRecords.size, allRecords.perSecond);
  let pending = new Map<number, Pending>();
  let waiting = 0;
  let timer: NodeJS.Timeout | undefined;
  let writing = Promise.resolve();

  async function writeAll(): Promise<void> {
    const unwritten = pending;
    pending = new Map();
    waiting = 0;
    for (const [idApp, { records, requestsNotRecorded }] of unwritten) {
      const [first, ...others] = [...records.values()].map(({ record, requests }) => ({ ...record, requests }));
      if (first === undefined) {
        openPending(idApp).requestsNotRecorded += requestsNotRecorded;
        continue;
      }
      const all = [{ ...first, ...(requestsNotRecorded === 0 ? {} : { requestsNotRecorded }) }, ...others];
      await write(idApp, all).catch((error: unknown) => failures.add({ idApp, error: describeError(error) }));
    }
  }

  function openPending(idApp: number): Pending {
    const found = pending.get(idApp);
    if (found !== undefined) return found;
    const opened: Pending = { records: new Map(), requestsNotRecorded: 0 };
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
      const targetName = 'method' in target ? target.method : target.path;
      const key = `${isValidation} ${refusal.reason} ${targetName} ${refusal.detail}`.slice(0, maxKeyLength);
      const alike = ofThis.records.get(key);
      if (alike !== undefined) alike.requests += 1;
      else if (waiting < maxWaiting && ofApp.take(app.idApp) && ofAll.take()) {
        ofThis.records.set(key, { record: createRecord(request, bodies, clock.nowMs()), requests: 1 });
        waiting += 1;
      } else ofThis.requestsNotRecorded += 1;
    },
    stop: () => flush(),
  };
}
