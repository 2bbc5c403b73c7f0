/**
 * Schedules: exports that a user has created repeatedly.
 *
 * In: calls and commands, which write schedules; the export role, which writes their progress. Out: both.
 * Layout: `schedules/<account>/<id>.json`, a record; `<id>.progress.json` next to it. Ids are random and never repeat.
 * Invariant: a slot has one export. The progress and the export requests both name the slots that have one. A request
 * is durable before the progress that has its slot, and is deleted only after it.
 * Crash: between the request and the progress, the next start finds the request.
 */
import type { SlotRule, SlotSpan } from './slot-rule.ts';

/** A schedule as its user created it. Only pauses change it. */
export interface Schedule {
  /** `sc_` and 16 hex digits. */
  readonly idSchedule: string;
  readonly idAccount: number;
  readonly idUser: string;
  readonly createdMs: number;
  readonly rule: SlotRule;
  /** Missed slots that are caught up, the newest included. */
  readonly catchUp: number;
  /** The arguments of its exports without the period or the version. */
  readonly arguments: readonly (readonly [name: string, values: readonly string[]])[];
  /** Of a change feed: the first cursor. */
  readonly sinceVersion?: string;
  readonly firstSlot: number;
  readonly paused: boolean;
  /** Number of resumes: an earlier stop is void. */
  readonly resumes: number;
}

export interface Progress {
  /** The slots that have their export, sorted and apart. */
  readonly made: readonly SlotSpan[];
  /** The newest export request whose end is recorded; 0: none. */
  readonly endedReport: number;
  /** The newest export request; 0: none. */
  readonly lastReport: number;
  /** Of a change feed: the cursor of its last success. */
  readonly place?: string;
  /** Why no export is created; valid for the same number of resumes. */
  readonly stopped?: { readonly reason: string; readonly resumes: number };
}

export const noProgress: Progress = { made: [], endedReport: 0, lastReport: 0 };

/** Returns why a schedule creates no export; undefined if it does. */
export function stopReason({ resumes }: Schedule, { stopped }: Progress): string | undefined {
  return stopped?.resumes === resumes ? stopped.reason : undefined;
}

/**
 * Spans that are kept; of more, the two oldest are joined. Each further span is a stop longer than `catchUp`, or a
 * clock that was ahead.
 */
const mostSpans = 64;

export function isMade(made: readonly SlotSpan[], slot: number): boolean {
  return made.some(([first, last]) => first <= slot && slot <= last);
}

/** Adds a slot to spans, which are sorted and apart. */
export function addSlot(made: readonly SlotSpan[], slot: number): readonly SlotSpan[] {
  const spans: SlotSpan[] = [];
  let [first, last] = [slot, slot];
  for (const span of made) {
    if (span[1] + 1 < first || last + 1 < span[0]) spans.push(span);
    else [first, last] = [Math.min(first, span[0]), Math.max(last, span[1])];
  }
  spans.push([first, last]);
  const ordered = spans.toSorted((a, b) => a[0] - b[0]);
  const [oldest, second, ...others] = ordered;
  return ordered.length > mostSpans && oldest !== undefined && second !== undefined
    ? [[oldest[0], second[1]], ...others]
    : ordered;
}

/** The slots of a schedule that are due. */
interface DueSlots {
  readonly firstSlot: number;
  /** Missed slots that are caught up, the newest included. */
  readonly catchUp: number;
  readonly made: readonly SlotSpan[];
}

/**
 * Finds the oldest due slot if `newest` is the newest whose time has come. Skipped slots are not recorded: after a
 * clock that was ahead is set back, they are due again.
 */
export function findDueSlot({ firstSlot, catchUp, made }: DueSlots, newest: number): number | undefined {
  for (let slot = Math.max(firstSlot, newest - catchUp + 1); slot <= newest; slot += 1)
    if (!isMade(made, slot)) return slot;
  return undefined;
}

/** Finds the first slot after `newest` without an export. */
export function findNextSlot({ firstSlot, made }: DueSlots, newest: number): number {
  let slot = Math.max(firstSlot, newest + 1);
  for (const [first, last] of made) if (first <= slot && slot <= last) slot = last + 1;
  return slot;
}
