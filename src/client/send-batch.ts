import { createHash } from 'node:crypto';
import { cutBatches, renderBody } from './batches.ts';
import type { EventSource, RejectedEvent, SourceEvent, InputPosition } from './event-source.ts';
import type {
  BatchResponse,
  ImportArea,
  RetryUntilAnswered,
  KeyLookupResult,
  ServiceValidationError,
} from './import-area.ts';

/**
 * The service keeps a key for 24 hours. Older unconfirmed batches are looked up before they are sent again; the
 * difference is slack for clock drift and slow requests.
 */
const keySafeMs = 20 * 3600 * 1000;

interface InFlightBatch {
  readonly events: readonly SourceEvent[];
  /** Lines rejected before, which are sent individually. */
  readonly sentAlone: ReadonlySet<number>;
  /** When the batch may have been sent first, Unix milliseconds. */
  readonly sinceMs: number;
  /** An earlier run may have sent it. */
  readonly isInDoubt: boolean;
}

export interface SendOutcome {
  readonly stored: number;
  readonly rejected: readonly RejectedEvent[];
}

export interface SendDependencies {
  readonly area: ImportArea;
  readonly method: string;
  /** Distinguishes the keys of imports. */
  readonly seed: string;
  readonly nowMs: () => number;
  readonly retryUntilAnswered: RetryUntilAnswered;
  readonly onUnknown: (parameters: readonly string[]) => void;
  /** Called for an acknowledged batch. */
  readonly onKey: (key: string) => void;
}

/** Returns the Idempotency-Key of events at a line, which depends on nothing else. */
function keyOf(seed: string, line: number, body: string): string {
  return `import-${createHash('sha256').update(`${seed}\n${line}\n`).update(body).digest('hex').slice(0, 48)}`;
}

function toRejected({ line, json }: SourceEvent, validationErrors: readonly ServiceValidationError[]): RejectedEvent {
  const [first] = validationErrors;
  return {
    line,
    ...(first?.field === undefined || first.field === '' ? {} : { field: first.field }),
    reason: validationErrors
      .map(({ field, reason }, index) => (index === 0 ? reason : `${field ?? ''} ${reason}`))
      .join('; '),
    ...(first?.hint === undefined ? {} : { hint: first.hint }),
    json,
  };
}

type Definite = Exclude<BatchResponse, { readonly state: 'later' }>;
const storedAlready: Definite = { state: 'stored', unknownParameters: [] };

/** Sends events with their key until they are stored or rejected; undefined if aborted. */
type Post = (events: readonly SourceEvent[]) => Promise<Definite | undefined>;

function createPost(dependencies: SendDependencies, { sinceMs, isInDoubt }: InFlightBatch): Post {
  const { area, method, seed, nowMs, retryUntilAnswered, onUnknown, onKey } = dependencies;
  /** Reports whether the service may have forgotten the key. The clock may have been set, also back. */
  const isOld = (): boolean => Math.abs(nowMs() - sinceMs) > keySafeMs;

  return async (events) => {
    const body = renderBody(events);
    const key = keyOf(seed, events[0]?.line ?? 0, body);
    let mayBeThere = isInDoubt;
    const answer = await retryUntilAnswered(async () => {
      if (mayBeThere && isOld()) {
        const found = await area.findKey(key);
        if ('why' in found) return found;
        if (found.isKnown) return storedAlready;
      }
      mayBeThere = true;
      const posted = await area.postBatch(method, body, key);
      return posted.state === 'later' ? { why: posted.why, waitMs: posted.waitMs } : posted;
    });
    if (answer?.state === 'stored') {
      onKey(key);
      if (answer.unknownParameters.length > 0) onUnknown(answer.unknownParameters);
    }
    return answer;
  };
}

/** Splits a rejected batch. If no error names an event, `alone` has all: each is sent individually. */
function splitRejected(events: readonly SourceEvent[], validationErrors: readonly ServiceValidationError[]) {
  const ofEvent = (at: number): readonly ServiceValidationError[] =>
    events.length === 1 ? validationErrors : validationErrors.filter(({ index }) => index === at);
  const rejected = events.flatMap((event, at) => {
    const eventErrors = ofEvent(at);
    return eventErrors.length === 0 ? [] : [toRejected(event, eventErrors)];
  });
  const isNamed = rejected.length > 0;
  const others = isNamed ? events.filter((_, at) => ofEvent(at).length === 0) : [];
  return { rejected, alone: isNamed ? [] : events, others };
}

/**
 * Sends a batch until the state of each event is known. One invalid event makes the service reject the batch: the
 * others are sent without it. Undefined if aborted: each may be stored or not. Errors: `service_refused`,
 * `service_away`; those of `persistRejectedLines`.
 */
export async function sendBatch(
  dependencies: SendDependencies,
  inFlightBatch: InFlightBatch,
  /** Stores the rejected lines before the rest is sent without them. */
  persistRejectedLines: (lines: readonly number[]) => Promise<void>,
): Promise<SendOutcome | undefined> {
  const post = createPost(dependencies, inFlightBatch);
  const alone = inFlightBatch.events.filter(({ line }) => inFlightBatch.sentAlone.has(line));
  const rejected: RejectedEvent[] = [];
  let stored = 0;
  let together = inFlightBatch.events.filter(({ line }) => !inFlightBatch.sentAlone.has(line));
  while (together.length > 0) {
    const answer = await post(together);
    if (answer === undefined) return undefined;
    if (answer.state === 'stored') {
      stored += together.length;
      break;
    }
    const split = splitRejected(together, answer.validationErrors);
    rejected.push(...split.rejected);
    alone.push(...split.alone);
    together = [...split.others];
    const apart = [...alone, ...rejected].map(({ line }) => line);
    if (split.others.length + split.alone.length > 0) await persistRejectedLines(apart.toSorted((a, b) => a - b));
  }
  for (const event of alone) {
    const answer = await post([event]);
    if (answer === undefined) return undefined;
    if (answer.state === 'stored') stored += 1;
    else rejected.push(toRejected(event, answer.validationErrors));
  }
  return { stored, rejected: rejected.toSorted((a, b) => a.line - b.line) };
}

/** A lookup of events that the state does not know. */
interface EarlierLookup extends Pick<SendDependencies, 'area' | 'retryUntilAnswered' | 'method' | 'seed'> {
  readonly source: EventSource;
  /** Where to read from. */
  readonly from: { readonly number: number; readonly place: InputPosition };
  /** First batch that has not been sent by the state. */
  readonly first: number;
}

/** `rejected`: all events were rejected, so that the batch proves nothing. */
type Known = KeyLookupResult | 'rejected';

/**
 * Looks up whether a batch was stored, without the events that `sendBatch` would omit, since they change the key.
 * Undefined if aborted.
 */
async function lookUpBatch(events: readonly SourceEvent[], lookup: EarlierLookup): Promise<Known | undefined> {
  const { area, retryUntilAnswered, method, seed } = lookup;
  const [first] = events;
  if (first === undefined) return 'rejected';
  const body = renderBody(events);
  const found = await retryUntilAnswered<KeyLookupResult>(async () => {
    const answer = await area.findKey(keyOf(seed, first.line, body));
    if (!('why' in answer)) return answer;
    return {
      ...answer,
      why: `cannot check whether this file was imported before (--reimport skips the check): ${answer.why}`,
    };
  });
  if (found === undefined || found.isKnown) return found;
  const checked = await retryUntilAnswered<Definite>(async () => {
    const answer = await area.checkBatch(method, body);
    return answer.state === 'later' ? { why: answer.why, waitMs: answer.waitMs } : answer;
  });
  if (checked?.state !== 'rejected') return checked === undefined ? undefined : found;
  if (events.length === 1) return 'rejected';
  const { alone, others } = splitRejected(events, checked.validationErrors);
  for (const event of alone) {
    const answer = await lookUpBatch([event], lookup);
    if (answer !== 'rejected') return answer;
  }
  return lookUpBatch(others, lookup);
}

/**
 * Looks up whether the service has batches that the state has not sent: the state of an earlier import is lost, or a
 * copy of the file was imported further elsewhere. Batches are sent in order, so the first one decides. Returns since
 * when, by the service's clock; undefined if not, or if aborted. Errors: those of `retryUntilAnswered`.
 */
export async function checkPreviousImport(lookup: EarlierLookup): Promise<number | undefined> {
  for await (const { number, events } of cutBatches(lookup.source, lookup.from)) {
    if (number < lookup.first || events.length === 0) continue;
    const answer = await lookUpBatch(events, lookup);
    if (answer !== 'rejected') return answer?.isKnown === true ? (answer.receivedAtMs ?? 0) : undefined;
  }
  return undefined;
}
