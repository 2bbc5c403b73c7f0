/**
 * Schedules at rest: exports that a user has made again and again.
 *
 * In: the user's calls and the operator's commands, which write what a schedule is; the export role, which writes how
 * far it has come. Out: both, to the export role and to whoever asks.
 * Layout: `schedules/<account>/<id>.json`, a record; `<id>.progress.json` beside it, written by the export role alone.
 * Ids are random, so that none is given out twice.
 * Invariant: a slot has one export. Which slots have one is known from two places: from the progress, and from the
 * export requests themselves, each of which names its slot. A request is durable first, then the progress that has its
 * slot; a request goes only when the progress has it.
 * Crash: a record is there whole or not at all. Between the request and the progress the next start finds the request.
 */
import type { SlotRule, SlotSpan } from './slot-rule.ts';

/** What a schedule is, as its user has ordered it. It is never changed but for pauses: who wants another adds one. */
export interface Schedule {
  /** `sc_` and 16 hex digits. */
  readonly idSchedule: string;
  readonly idAccount: number;
  readonly idUser: string;
  readonly createdMs: number;
  readonly rule: SlotRule;
  /** How many slots back, the newest included, are made up after a stop. */
  readonly catchUp: number;
  /** The arguments of its exports but for the period or the version, each with its values. */
  readonly arguments: readonly (readonly [name: string, values: readonly string[]])[];
  /** Of a change feed: the place at which it begins. */
  readonly sinceVersion?: string;
  /** Number of its first slot; earlier ones are none of its own. */
  readonly firstSlot: number;
  readonly paused: boolean;
  /** How often it was resumed: what has stopped it before the last time holds no more. */
  readonly resumes: number;
}

/** How far a schedule has come. */
export interface Progress {
  /** The slots that have their export, apart from each other and in their order. */
  readonly made: readonly SlotSpan[];
  /** The newest export request that has ended and is reckoned in below; 0: none. */
  readonly endedReport: number;
  /** The newest export request that was made; 0: none. */
  readonly lastReport: number;
  /** Of a change feed: the place that its last successful export ended at. */
  readonly place?: string;
  /** Why no export is made any more; holds while the schedule has been resumed as often. */
  readonly stopped?: { readonly reason: string; readonly resumes: number };
}

/** The progress of a schedule that nothing was made of. */
export const noProgress: Progress = { made: [], endedReport: 0, lastReport: 0 };

/** Why a schedule makes no export; undefined: it does. */
export function stopReason({ resumes }: Schedule, { stopped }: Progress): string | undefined {
  return stopped?.resumes === resumes ? stopped.reason : undefined;
}
