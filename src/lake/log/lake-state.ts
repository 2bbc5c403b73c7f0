import assert from 'node:assert/strict';
import { type CommitInfoAction, type TxnAction, findInfo, type Action } from './actions.ts';
import type { Clock } from '../../runtime/clock.ts';
import { membersOf } from '../../runtime/files/checksummed-json.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import { isCount, isText, shapeOf } from '../../runtime/store/shape.ts';

export type CommitCause =
  | 'create'
  | 'start'
  | 'schema'
  | 'flush'
  | 'epoch'
  | 'seal'
  | 'merge'
  | 'erase'
  | 'erasures'
  | 'expire'
  | 'enrich'
  | 'swap'
  | 'replay'
  | 'drop'
  | 'protocol'
  | 'reset'
  | 'repair'
  | 'restamp'
  | 'restore'
  | 'load'
  | 'unload';

/** Totals of the events in the stream: `streamed` = rows in the lake + `failed` + `repeats` + `erased`. */
export interface Totals {
  readonly streamed: number;
  readonly stored: number;
  readonly failed: number;
  readonly repeats: number;
  readonly erased: number;
}

/** A period in which the lake follows one stream. */
export interface Epoch {
  /** Id of the txn action with the position: the stream's id, numbered after a stream fault. */
  readonly appId: string;
  readonly streamId: string;
  /** The last committed stream sequence; 0 before the first. The txn action has it too. */
  readonly position: number;
  /** SHA-256 (hex) of the message at `position`; absent at the start of an epoch. */
  readonly anchorHash?: string;
  /** SHA-256 (hex) of the message after the first `position` of an epoch, to detect reused sequences. */
  readonly nextHash?: string;
  /** Events up to this sequence may be in the lake from another epoch: each is looked up by id. */
  readonly dedupeThrough: number;
  /** Watermark at `position`, Unix ms (lake/watermark.ts). Absent before the first commit of the epoch. */
  readonly watermarkMs?: number;
}

/** A clock repair, which changed `available_at` of rows (lake/repair/restamp.ts). */
export interface Restamp {
  readonly version: number;
  /** The newest `available_at` that it set, Unix ms. */
  readonly toMs: number;
  /** The newest `available_at` that it read, Unix ms. Later ones are unchanged. Absent: all. */
  readonly upToMs?: number;
  /** File of the changed times, relative to the table's folder. Absent if no row had one. */
  readonly steps?: string;
}

export interface ErasedIdsState {
  /** Number of hashes; 0 if the file was lost. */
  readonly hashes: number;
  readonly sha256: string;
  /** Whether hashes were lost, as accepted by an operator. */
  readonly isPartial?: true;
}

/** The newest erasure list of a table (lake/event-index/erasure-list.ts). */
export interface ErasureListState {
  /** Relative to the table's folder. */
  readonly file: string;
  readonly sizeBytes: number;
  readonly sha256: string;
  readonly rows: number;
  /** Removals up to this version may be missing. */
  readonly since: number;
  /** The version that has ended the newest removal. Absent: it is in progress. */
  readonly removedBy?: number;
}

/** The service's part of a commit. Totals and position accumulate, so the newest commit has all. */
export interface LakeState {
  readonly commitId: string;
  readonly cause: CommitCause;
  /** SHA-256 (hex) of the previous commit, which makes the log a hash chain. */
  readonly previous?: string;
  /** Versions before this one have erased rows. They are removed at `forgetAtMs`. */
  readonly forgetBefore?: number;
  /** Apps of an unfinished erasure; `true`: any. */
  readonly erasing?: true | readonly number[];
  /** By app, or `all`: versions before this one have rows erased later. */
  readonly erasedBefore?: Readonly<Record<string, number>>;
  /** End of the retention of the newest erasure, Unix ms. Absent: immediately. */
  readonly forgetAtMs?: number;
  readonly totals: Totals;
  readonly epoch?: Epoch;
  /** Id of the compactor that may commit. Each claims the lake at its start, which fences the previous one. */
  readonly writer?: string;
  /** The commitId of the newest commit with Idempotency-Keys. A writer must have read it to find all duplicates. */
  readonly keysCommit?: string;
  /** Absent if nothing was erased since 0.4. Only in the events table. */
  readonly erasedIds?: ErasedIdsState;
  /** Absent if no removal was listed. */
  readonly erasures?: ErasureListState;
  /** The newest day (UTC) for which age limits were applied. */
  readonly expiryDay?: string;
  /** The newest `available_at` assigned, Unix ms. It never decreases. */
  readonly availableAtMs: number;
  /** The commitId of the commit that assigned it. Absent in earlier versions. */
  readonly availableBy?: string;
  /** Clock repairs, oldest first. */
  readonly restamps?: readonly Restamp[];
  /** Time of the restored backup, ISO 8601, until a stream has been read. */
  readonly restoredFrom?: string;
}

/** Returns a value per total. */
export function perTotal<T>(of: (name: keyof Totals) => T): Readonly<Record<keyof Totals, T>> {
  const [streamed, stored, failed] = [of('streamed'), of('stored'), of('failed')];
  return { streamed, stored, failed, repeats: of('repeats'), erased: of('erased') };
}

export const emptyTotals: Totals = perTotal(() => 0);
const isTotals = shapeOf<Totals>(perTotal(() => isCount));

export function findStateOf(actions: readonly Action[]): LakeState | undefined {
  return findLakeState(findInfo(actions));
}

function isEpoch(value: unknown): boolean {
  const { appId, streamId, position, dedupeThrough, watermarkMs } = membersOf(value);
  return isText(appId) && isText(streamId) && isCount(position) && isCount(dedupeThrough) && isCount(watermarkMs ?? 0);
}

function isLakeState(value: unknown): value is LakeState {
  const { commitId, availableAtMs, totals, epoch } = membersOf(value);
  return isText(commitId) && isCount(availableAtMs) && isTotals(totals) && (epoch === undefined || isEpoch(epoch));
}

/** Returns the service's part of a commit; undefined for a foreign or invalid one. */
export function findLakeState(info: CommitInfoAction | undefined): LakeState | undefined {
  const state = info?.tributary;
  return isLakeState(state) ? state : undefined;
}

/** Readers of other apps still get older versions, and cannot notice erasures of other accounts. */

type Erasures = Pick<LakeState, 'forgetBefore' | 'erasing' | 'erasedBefore'>;

/** Limit of distinct apps. Above it, the earliest erasures count for all apps. */
const maxApps = 256;
const all = 'all';

function bound(before: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
  const entries = Object.entries(before).toSorted(([, a], [, b]) => b - a);
  const merged = entries.slice(maxApps);
  return Object.fromEntries(
    merged.length === 0
      ? entries
      : [...entries.slice(0, maxApps), [all, Math.max(before[all] ?? 0, ...merged.map(([, version]) => version))]],
  );
}

/** Versions before 0.4 did not record the apps. */
function erasedSoFar({ erasedBefore, forgetBefore }: Erasures): Readonly<Record<string, number>> {
  return erasedBefore ?? (forgetBefore === undefined ? {} : { [all]: forgetBefore });
}

/** Returns the members of the next state. `erasedApps`: absent: any. `forgetBefore`: the erasure's last version. */
export function moveErasures(
  before: Erasures,
  isErasure: boolean,
  { erasedApps, forgetBefore }: { readonly erasedApps?: readonly number[]; readonly forgetBefore?: number },
): Pick<LakeState, 'erasing' | 'erasedBefore'> {
  const apps = [...new Set([...(before.erasing === true ? [] : (before.erasing ?? [])), ...(erasedApps ?? [])])];
  const isAny = before.erasing === true || (isErasure && erasedApps === undefined) || apps.length > maxApps;
  const known = erasedSoFar(before);
  const erasedBefore =
    forgetBefore === undefined
      ? known
      : bound({ ...known, ...Object.fromEntries((isAny ? [all] : apps).map((app) => [app, forgetBefore])) });
  const isUnfinished = forgetBefore === undefined && (isErasure || before.erasing !== undefined);
  return {
    ...(isUnfinished ? { erasing: isAny ? true : apps } : {}),
    ...(Object.keys(erasedBefore).length === 0 ? {} : { erasedBefore }),
  };
}

/** Returns which older versions are erased for a reader of some apps; undefined: of all. */
export function findErased(
  state: Erasures,
  idApps: readonly number[] | undefined,
): { readonly before: number; readonly isErasing: boolean } {
  const { erasing } = state;
  const known = erasedSoFar(state);
  const names = idApps === undefined ? Object.keys(known) : [all, ...idApps];
  return {
    before: names.reduce<number>((newest, name) => Math.max(newest, known[name] ?? 0), 0),
    isErasing: erasing === true || (erasing ?? []).some((app) => idApps === undefined || idApps.includes(app)),
  };
}

/** Writers and readers of the log assert invariants of consecutive commits, in constant time. A failure is a bug. */

const growing = ['streamed', 'repeats', 'erased'] as const satisfies readonly (keyof Totals)[];

/** Asserts that every event is counted, that the position advances, and that times keep their order. */
export function assertContinuity(before: LakeState, after: LakeState): void {
  const change = perTotal((name) => after.totals[name] - before.totals[name]);
  assert(
    change.streamed === change.stored + change.failed + change.repeats + change.erased,
    `a commit (${after.cause}) does not account for its events: ${JSON.stringify(change)}`,
  );
  for (const name of growing)
    assert(change[name] >= 0, `a commit (${after.cause}) decreases ${name} by ${-change[name]}`);
  for (const [name, total] of Object.entries(after.totals))
    assert(Number.isSafeInteger(total) && total >= 0, `a commit (${after.cause}) leaves ${total} ${name}`);

  const [was, is] = [before.epoch, after.epoch];
  assert(was === undefined || is !== undefined, `a commit (${after.cause}) drops the position`);
  if (was?.appId === is?.appId)
    assert(
      (is?.position ?? 0) >= (was?.position ?? 0),
      `a commit (${after.cause}) moves the position back, from ${was?.position} to ${is?.position}`,
    );
  assert(
    after.availableAtMs >= before.availableAtMs || after.cause === 'restamp',
    `a commit (${after.cause}) sets available_at back, from ${before.availableAtMs} to ${after.availableAtMs}`,
  );
}

/** Asserts that the position in the lake's state equals that in the table's txn actions. `txns`: positions by appId. */
export function assertPosition({ epoch }: LakeState, txns: ReadonlyMap<string, number>): void {
  if (epoch === undefined) return;
  assert(
    txns.get(epoch.appId) === epoch.position,
    `the position of ${epoch.appId} is ${epoch.position} in the lake's state, and ${txns.get(epoch.appId)} in the table's`,
  );
}

/** `available_at` orders rows: a commit with rows has a later one than all before, a millisecond later if needed. */

/** Tolerance of clock differences, ms. Time servers correct by less. */
export const clockToleranceMs = 5 * 60_000;

/** Returns the `available_at` of the next commit with rows, Unix ms. */
export function nextAvailableAtMs(clock: Clock, lake: LakeState): number {
  return Math.max(clock.nowMs(), lake.availableAtMs + 1);
}

/** Reports whether a recorded time is so far in the future that a clock was wrong. */
export function isClockBehind(timeMs: number, nowMs: number): boolean {
  return timeMs - nowMs > clockToleranceMs;
}

const units = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
] as const;

function describeSpan(ms: number): string {
  const [unit, length] = units.find(([, size]) => ms >= size) ?? units[2];
  const count = Math.round((10 * ms) / length) / 10;
  return `${count} ${unit}${count === 1 ? '' : 's'}`;
}

/** Describes an `available_at` ahead of the clock. `since`: when it was first seen, ISO 8601. */
export function describeClock(availableAtMs: number, nowMs: number, since?: string): Problem {
  return {
    code: 'clock_behind_lake',
    message: `the newest available_at of the lake, ${new Date(availableAtMs).toISOString()}, is ${describeSpan(availableAtMs - nowMs)} ahead of this machine's clock${since === undefined ? '' : `, seen since ${since}`}: the clock was ahead when rows were stored, or is behind now; filters by availability miss new rows`,
    action:
      "Correct the clock if it is behind; otherwise run 'tributary lake repair', which sets those rows to past times in the same order. No rows are lost.",
  };
}

/** Permanent state of each load, a txn action. A load id identifies the file's contents and the options. */

/** `review`: loaded rows that an undone load had too. Loading the file again checks each row. */
const loadStatuses = ['loaded', 'review', 'undone'] as const;
export type LoadStatus = (typeof loadStatuses)[number];

export interface LoadState {
  /** Number of loads of the file, including undone ones. */
  readonly generation: number;
  readonly status: LoadStatus;
}

const prefix = 'load/';
const statusCount = 4;

export function findLoadState(txns: ReadonlyMap<string, number>, loadId: string): LoadState | undefined {
  const version = txns.get(prefix + loadId);
  return version === undefined ? undefined : parseState(version);
}

function parseState(version: number): LoadState | undefined {
  const status = loadStatuses[version % statusCount];
  return status === undefined ? undefined : { generation: Math.floor(version / statusCount), status };
}

export function isSameLoadState(one: LoadState | undefined, other: LoadState | undefined): boolean {
  return one?.generation === other?.generation && one?.status === other?.status;
}

export function listLoadStates(txns: ReadonlyMap<string, number>): ReadonlyMap<string, LoadState> {
  return new Map(
    [...txns].flatMap(([appId, version]) => {
      const state = appId.startsWith(prefix) ? parseState(version) : undefined;
      return state === undefined ? [] : [[appId.slice(prefix.length), state] as const];
    }),
  );
}

export function toLoadTxn(loadId: string, { generation, status }: LoadState, nowMs: number): TxnAction {
  const version = generation * statusCount + loadStatuses.indexOf(status);
  return { appId: prefix + loadId, version, lastUpdated: nowMs };
}
