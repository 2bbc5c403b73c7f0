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
  /** Number of its first slot. */
  readonly firstSlot: number;
  readonly paused: boolean;
  /** Number of resumes: an earlier stop is void. */
  readonly resumes: number;
}

/** The progress of a schedule. */
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
