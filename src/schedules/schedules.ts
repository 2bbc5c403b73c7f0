/**
 * Schedules: recurring exports.
 *
 * In: calls and commands, which write schedules; the export role, which writes their progress. Out: both.
 * Layout: `schedules/<account>/<id>.json`, a record; next to it `<id>.progress.json`, and `<id>.run.json` while a run is
 * asked for. Ids are random and never repeat.
 * Invariant: a slot has one export. The progress and the export requests both name the slots that have one. A request
 * is durable before the progress that has its slot, and is deleted only after it. Where several hosts share the
 * requests, the progress reserves the id of a slot's request before it is created. So two hosts create one request.
 * Crash: between the request and the progress, the next start finds the request.
 */

import { defined } from '../runtime/files/checksummed-json.ts';

/** A schedule as its user created it. Only pauses change it. */
export interface Schedule {
  /** `sc_` and 16 hex digits. */
  readonly idSchedule: string;
  readonly idAccount: number;
  readonly idUser: string;
  readonly createdMs: number;
  readonly rule: Recurrence;
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

/** The result of a schedule's export. The export itself expires; its run stays. */
export interface ScheduleRun {
  readonly idReport: number;
  /** Name of its slot. */
  readonly slot: string;
  /** Whether a user asked for it. */
  readonly isAsked?: true;
  readonly createdMs: number;
  /** State of the request when it ended; absent while it is in progress. */
  readonly state?: string;
  readonly finishedMs?: number;
  readonly rows?: number;
  readonly bytes?: number;
  /** Error for the user. */
  readonly error?: string;
}

/** Runs that are kept, the newest. */
const keptRuns = 20;

/** Adds a run, or replaces it by its newer state. A run with a lower id than others is of a restored store. */
export function addRun(runs: readonly ScheduleRun[], run: ScheduleRun): readonly ScheduleRun[] {
  const others = runs.filter(({ idReport, slot }) => idReport !== run.idReport || slot !== run.slot);
  return [...others, run].toSorted((a, b) => a.createdMs - b.createdMs || a.idReport - b.idReport).slice(-keptRuns);
}

export interface ScheduleProgress {
  /** The slots that have their export, sorted and apart. */
  readonly made: readonly SlotSpan[];
  /** The newest export request whose end is recorded; 0: none. */
  readonly endedReport: number;
  readonly lastReport: number;
  /** Of a change feed: the cursor of its last success. */
  readonly place?: string;
  /** The newest slot of which a host creates the export, and the id of its request. Absent without other hosts. */
  readonly reserved?: { readonly slot: number; readonly idReport: number; readonly run?: string };
  /** Why no export is created; valid for the same number of resumes. Without a time in records of 0.3. */
  readonly stopped?: { readonly reason: string; readonly resumes: number; readonly atMs?: number };
  /** The newest runs, oldest first; absent in records of 0.3. */
  readonly runs?: readonly ScheduleRun[];
}

export const noProgress: ScheduleProgress = { made: [], endedReport: 0, lastReport: 0 };

/** Returns why a schedule creates no export; undefined if it does. */
export function stopReason({ resumes }: Schedule, { stopped }: ScheduleProgress): string | undefined {
  return stopped?.resumes === resumes ? stopped.reason : undefined;
}

/** Returns the name of a schedule and its exports; undefined without one. */
export function nameOf(schedule: Pick<Schedule, 'arguments'>): string | undefined {
  return new Map(schedule.arguments).get('name')?.[0]?.trim();
}

/** A schedule that creates no exports until its user resumes it. */
export interface ScheduleStop {
  readonly idAccount: number;
  readonly idSchedule: string;
  readonly name?: string;
  readonly event: string;
  readonly reason: string;
  /** Unix ms. */
  readonly atMs: number;
}

/** Returns the stop of a schedule; undefined if it runs, or was stopped by a version before 0.4. */
export function findStop(schedule: Schedule, scheduleProgress: ScheduleProgress): ScheduleStop | undefined {
  const { idAccount, idSchedule } = schedule;
  const given = new Map(schedule.arguments);
  const reason = stopReason(schedule, scheduleProgress);
  const atMs = scheduleProgress.stopped?.atMs;
  if (reason === undefined || atMs === undefined) return undefined;
  const [event = ''] = given.get('event') ?? [];
  return { idAccount, idSchedule, ...defined({ name: nameOf(schedule) }), event, reason, atMs };
}

/**
 * Maximum number of spans; the two oldest of more are joined. A span ends with a stop longer than `catchUp`, or with a
 * clock that was ahead.
 */
const maxSpans = 64;

export function hasExport(made: readonly SlotSpan[], slot: number): boolean {
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
  return ordered.length > maxSpans && oldest !== undefined && second !== undefined
    ? [[oldest[0], second[1]], ...others]
    : ordered;
}

/** The slots of a schedule that are due. */
interface DueSlots {
  readonly firstSlot: number;
  readonly catchUp: number;
  readonly made: readonly SlotSpan[];
}

/**
 * Finds the oldest due slot if `newest` is the newest whose time has come. Skipped slots are not recorded: after a
 * clock that was ahead is set back, they are due again.
 */
export function findDueSlot({ firstSlot, catchUp, made }: DueSlots, newest: number): number | undefined {
  for (let slot = Math.max(firstSlot, newest - catchUp + 1); slot <= newest; slot += 1)
    if (!hasExport(made, slot)) return slot;
  return undefined;
}

/** Finds the first slot after `newest` without an export. */
export function findNextSlot({ firstSlot, made }: DueSlots, newest: number): number {
  let slot = Math.max(firstSlot, newest + 1);
  for (const [first, last] of made) if (first <= slot && slot <= last) slot = last + 1;
  return slot;
}

export const frequencies = ['hour', 'day', 'week'] as const;
export type Frequency = (typeof frequencies)[number];

export const weekdays = ['monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday', 'sunday'] as const;

/**
 * The slots of a schedule. A slot is a number: hours since 1970 (UTC), or days or weeks of the calendar. So neither
 * clocks nor changed rules of a zone change it.
 */
export interface Recurrence {
  readonly every: Frequency;
  /** `HH:MM` in the zone; of an hour `:MM`, in UTC. */
  readonly at: string;
  /** Of a week: 1 (Monday) to 7. */
  readonly weekday?: number;
  readonly timezone: string;
}

export type SlotSpan = readonly [first: number, last: number];

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/** Days from 1970-01-01, a Thursday, to the first day of week 0. */
const weekOffset = ({ weekday = 1 }: Recurrence): number => (weekday + 3) % 7;

function dayOf(rule: Recurrence, slot: number): number {
  return rule.every === 'week' ? slot * 7 + weekOffset(rule) : slot;
}

export function toDate(day: number): string {
  return new Date(day * dayMs).toISOString().slice(0, 10);
}

export function toDay(date: string): number {
  return Date.parse(`${date}T00:00:00Z`) / dayMs;
}

/** Returns the date of a slot, `YYYY-MM-DD`; of an hour in UTC. */
export function slotDate(rule: Recurrence, slot: number): string {
  return rule.every === 'hour' ? toDate(Math.floor(slot / 24)) : toDate(dayOf(rule, slot));
}

/** Returns the slot of a date, or the last one before it. Not for hours. */
export function slotOfDate(rule: Recurrence, date: string): number {
  const day = toDay(date);
  return rule.every === 'week' ? Math.floor((day - weekOffset(rule)) / 7) : day;
}

/** Returns the time of an hour's slot, Unix ms. */
export function hourSlotMs({ at }: Recurrence, slot: number): number {
  return slot * hourMs + Number(at.slice(1)) * 60_000;
}

/** Returns the newest hour's slot whose time has come. */
export function newestHourSlot(rule: Recurrence, nowMs: number): number {
  return Math.floor((nowMs - hourSlotMs(rule, 0)) / hourMs);
}

/** Returns the name of a slot: its date, `2026-11-23`; of an hour `2026-11-23T04Z`. */
export function slotName(rule: Recurrence, slot: number): string {
  return rule.every === 'hour' ? `${new Date(slot * hourMs).toISOString().slice(0, 13)}Z` : slotDate(rule, slot);
}

/** Returns the arguments of the period before a slot: the hour, the day or the seven days. */
export function periodOf(rule: Recurrence, slot: number): Readonly<Record<string, string>> {
  if (rule.every === 'hour') return { tsFrom: String((slot - 1) * 3600), tsTo: String(slot * 3600 - 1) };
  const day = dayOf(rule, slot);
  return { dateFrom: toDate(rule.every === 'week' ? day - 7 : day - 1), dateTo: toDate(day - 1) };
}
