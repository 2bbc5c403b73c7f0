import { createHash } from 'node:crypto';
import { cutBatches, renderBody } from './batches.ts';
import type { EventSource, RefusedEvent, SourceEvent } from './event-source.ts';
import type { BatchAnswer, ImportArea, Insist, KeyAnswer, ServiceFault } from './import-area.ts';
import type { Place } from './records.ts';

/**
 * The service remembers a key for 24 hours from receipt to receipt. What was sent longer ago than this is asked after
 * before it is sent again: the rest of the day is for clocks that differ, and requests that take their time.
 */
export const keySafeMs = 20 * 3600 * 1000;

/** A batch on its way. */
export interface Sending {
  readonly events: readonly SourceEvent[];
  /** Lines that were found to be refused before, and are sent each by itself. */
  readonly apart: ReadonlySet<number>;
  /** When it may have been sent for the first time, by this run or one before, Unix milliseconds. */
  readonly sinceMs: number;
  /** It may have been sent by a run before. */
  readonly isInDoubt: boolean;
}

/** What became of a batch. */
export interface SendOutcome {
  readonly stored: number;
  readonly refused: readonly RefusedEvent[];
}

export interface SendDependencies {
  readonly area: ImportArea;
  /** The method for a batch. */
  readonly method: string;
  /** What tells the keys of this import from those of all others. */
  readonly seed: string;
  readonly nowMs: () => number;
  readonly insist: Insist;
  readonly onUnknown: (parameters: readonly string[]) => void;
  /** A batch under this key was acknowledged. */
  readonly onKey: (key: string) => void;
}

/** Keeps which events of a batch are refused, at rest, before the others are sent without them. */
export type KeepApart = (lines: readonly number[]) => Promise<void>;

/** The Idempotency-Key of events at a line of an input: the same ones there always have the same. */
export function keyOf(seed: string, line: number, body: string): string {
  return `import-${createHash('sha256').update(`${seed}\n${line}\n`).update(body).digest('hex').slice(0, 48)}`;
}

function toRefused({ line, json }: SourceEvent, faults: readonly ServiceFault[]): RefusedEvent {
  const [first] = faults;
  return {
    line,
    ...(first?.field === undefined || first.field === '' ? {} : { field: first.field }),
    reason: faults.map(({ field, reason }, index) => (index === 0 ? reason : `${field ?? ''} ${reason}`)).join('; '),
    ...(first?.hint === undefined ? {} : { hint: first.hint }),
    json,
  };
}

/** What is known of a batch in the end. */
export type Judged = Exclude<BatchAnswer, { readonly state: 'later' }>;
const storedAlready: Judged = { state: 'stored', unknownParameters: [] };

/** Sends events under their key until they are stored or refused; undefined when the import was ended before. */
type Post = (events: readonly SourceEvent[]) => Promise<Judged | undefined>;

function createPost(dependencies: SendDependencies, { sinceMs, isInDoubt }: Sending): Post {
  const { area, method, seed, nowMs, insist, onUnknown, onKey } = dependencies;
  /** Whether a key may be forgotten: by a clock that may have been set, also back. */
  const isOld = (): boolean => Math.abs(nowMs() - sinceMs) > keySafeMs;

  return async (events) => {
    const body = renderBody(events);
    const key = keyOf(seed, events[0]?.line ?? 0, body);
    let mayBeThere = isInDoubt;
    const answer = await insist(async () => {
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

/** What a refused batch comes apart into. */
export interface Parted {
  readonly refused: readonly RefusedEvent[];
  /** Those that the service has not named, where it has named none: each is sent by itself. */
  readonly alone: readonly SourceEvent[];
  readonly rest: readonly SourceEvent[];
}

/** Tells the refused events of a batch from the others. */
export function part(events: readonly SourceEvent[], faults: readonly ServiceFault[]): Parted {
  const ofEvent = (at: number): readonly ServiceFault[] =>
    events.length === 1 ? faults : faults.filter(({ index }) => index === at);
  const refused = events.flatMap((event, at) => {
    const own = ofEvent(at);
    return own.length === 0 ? [] : [toRefused(event, own)];
  });
  const isNamed = refused.length > 0;
  const rest = isNamed ? events.filter((_, at) => ofEvent(at).length === 0) : [];
  return { refused, alone: isNamed ? [] : events, rest };
}

/**
 * Sends a batch until it is known what became of each of its events. One refused event makes the service refuse them
 * all: the others are sent without it. Undefined when the import was ended before: each may be stored or not. Errors:
 * `service_refused`, `service_away`; those of `keepApart`.
 */
export async function sendBatch(
  dependencies: SendDependencies,
  sending: Sending,
  keepApart: KeepApart,
): Promise<SendOutcome | undefined> {
  const post = createPost(dependencies, sending);
  const alone = sending.events.filter(({ line }) => sending.apart.has(line));
  const refused: RefusedEvent[] = [];
  let stored = 0;
  let together = sending.events.filter(({ line }) => !sending.apart.has(line));
  while (together.length > 0) {
    const answer = await post(together);
    if (answer === undefined) return undefined;
    if (answer.state === 'stored') {
      stored += together.length;
      break;
    }
    const parted = part(together, answer.faults);
    refused.push(...parted.refused);
    alone.push(...parted.alone);
    together = [...parted.rest];
    const apart = [...alone, ...refused].map(({ line }) => line);
    if (parted.rest.length + parted.alone.length > 0) await keepApart(apart.toSorted((a, b) => a - b));
  }
  for (const event of alone) {
    const answer = await post([event]);
    if (answer === undefined) return undefined;
    if (answer.state === 'stored') stored += 1;
    else refused.push(toRefused(event, answer.faults));
  }
  return { stored, refused: refused.toSorted((a, b) => a.line - b.line) };
}

/** Where an import may have left events that the state at hand knows nothing of. */
export interface EarlierQuestion {
  readonly source: EventSource;
  readonly area: ImportArea;
  readonly insist: Insist;
  /** The method for a batch. */
  readonly method: string;
  readonly seed: string;
  /** The end of a batch, to read from. */
  readonly from: { readonly number: number; readonly place: Place };
  /** The first batch that by the state nobody has sent. */
  readonly first: number;
}

/** What the service says of a batch. `refused`: of each of its events, so that it says nothing of the import. */
type Known = KeyAnswer | 'refused';

/**
 * Asks whether a batch was stored. One refused event makes the others go under another key, so what would be refused is
 * left out as `sendBatch` does. Undefined when the signal ended it.
 */
async function askFor(events: readonly SourceEvent[], question: EarlierQuestion): Promise<Known | undefined> {
  const { area, insist, method, seed } = question;
  const [first] = events;
  if (first === undefined) return 'refused';
  const body = renderBody(events);
  const found = await insist<KeyAnswer>(async () => {
    const answer = await area.findKey(keyOf(seed, first.line, body));
    if (!('why' in answer)) return answer;
    return {
      ...answer,
      why: `the service cannot say whether it has this file already (--again does not ask): ${answer.why}`,
    };
  });
  if (found === undefined || found.isKnown) return found;
  const judged = await insist<Judged>(async () => {
    const answer = await area.checkBatch(method, body);
    return answer.state === 'later' ? { why: answer.why, waitMs: answer.waitMs } : answer;
  });
  if (judged?.state !== 'refused') return judged === undefined ? undefined : found;
  if (events.length === 1) return 'refused';
  const { alone, rest } = part(events, judged.faults);
  for (const event of alone) {
    const answer = await askFor([event], question);
    if (answer !== 'refused') return answer;
  }
  return askFor(rest, question);
}

/**
 * Asks whether the service has what nobody has sent by the state of an import: the state of an earlier one is gone, or a
 * copy of the file and its state went on elsewhere. Batches are sent in their order, so the first one tells. Returns
 * since when, by the service's clock; undefined: it has not, or the signal ended the question. Errors: those of `insist`.
 */
export async function findEarlier(question: EarlierQuestion): Promise<number | undefined> {
  for await (const { number, events } of cutBatches(question.source, question.from)) {
    if (number < question.first || events.length === 0) continue;
    const answer = await askFor(events, question);
    if (answer !== 'refused') return answer?.isKnown === true ? (answer.receivedAtMs ?? 0) : undefined;
  }
  return undefined;
}
