import assert from 'node:assert/strict';
import type { CommitInfoAction, TxnAction } from './actions.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';

/** What made a commit. */
export type CommitCause =
  | 'create'
  | 'start'
  | 'schema'
  | 'flush'
  | 'epoch'
  | 'seal'
  | 'erase'
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

/**
 * Where every event that was in the stream has gone, since the lake was created:
 * `streamed` = rows in the lake + `failed` + `repeats` + `erased`.
 */
export interface Totals {
  readonly streamed: number;
  readonly stored: number;
  readonly failed: number;
  readonly repeats: number;
  readonly erased: number;
}

/** One life of the stream, as far as the lake has followed it. */
export interface Epoch {
  /**
   * Identity of the txn action that carries the position: the stream's id, and a number when that id had a fault
   * before.
   */
  readonly appId: string;
  /** The stream's own id: name and creation time. */
  readonly streamId: string;
  /** Last stream sequence in the lake; 0 before the first. The txn action says the same. */
  readonly position: number;
  /** SHA-256 (hex) of the message at `position`; absent at the start of an epoch. */
  readonly anchorHash?: string;
  /**
   * SHA-256 (hex) of the message after `position`, where the epoch began: while there is no anchor, it is known by this
   * whether numbers were used again.
   */
  readonly nextHash?: string;
  /** Events up to this sequence may already be in the lake under another epoch: each is looked up by its id. */
  readonly dedupeThrough: number;
  /**
   * Every event that was acknowledged before the broker's clock first showed this is in the stream up to `position`, Unix
   * milliseconds (lake/watermark.ts). Absent: nothing of the epoch is in the lake yet, or it was taken in before this
   * was written down.
   */
  readonly watermarkMs?: number;
}

/** A repair of the clock that has given rows another `available_at` (lake/repair/restamp.ts). */
export interface Restamp {
  /** The version that it made. */
  readonly version: number;
  /** The newest `available_at` among those that it has given, Unix milliseconds. */
  readonly toMs: number;
  /** The newest `available_at` that it has looked at, Unix milliseconds: later ones stay as they are. Absent: all. */
  readonly upToMs?: number;
  /** The file that says what became of each time, relative to the table's folder; absent: no row had one. */
  readonly steps?: string;
}

/** The file of the hashes of erased ids (lake/find/erased-ids.ts). */
export interface ErasedIdsState {
  /** How many hashes it has; 0: it is not there, since those of before were lost. */
  readonly hashes: number;
  /** SHA-256 of its bytes, hex. */
  readonly sha256: string;
  /** Hashes of earlier erasures were lost, and an operator has accepted it. */
  readonly isPartial?: true;
}

/** The service's own part of a commit: totals and position are running values, so the newest commit says it all. */
export interface LakeState {
  /** Unique id of the commit. */
  readonly commitId: string;
  readonly cause: CommitCause;
  /** SHA-256 (hex) of the bytes of the commit before: the log is a chain, so that a changed entry shows. */
  readonly previous?: string;
  /**
   * Versions before this one refer to erased rows: they are dropped, with the files that only they name, at
   * `forgetAtMs`.
   */
  readonly forgetBefore?: number;
  /**
   * An erasure has taken rows of these apps out (`true`: of any) and has not said yet which versions are to be dropped
   * for it.
   */
  readonly erasing?: true | readonly number[];
  /** By app, or `all` for any: the versions before this one have rows of it that were erased since. */
  readonly erasedBefore?: Readonly<Record<string, number>>;
  /** When the retention of the newest erasure is over, Unix milliseconds; absent: at once, whoever still reads. */
  readonly forgetAtMs?: number;
  readonly totals: Totals;
  readonly epoch?: Epoch;
  /** The compactor that may flush and seal: each claims the lake at its start, which fences the one before. */
  readonly writer?: string;
  /**
   * The commitId of the newest commit that added events under Idempotency-Keys. Who judges repeats must have seen it: a
   * flush and a replay in another process would else each store the same event.
   */
  readonly keysCommit?: string;
  /**
   * The hashes of erased ids, in the log of the events alone. Absent: nothing was erased yet, or by a version before 0.4
   * only.
   */
  readonly erasedIds?: ErasedIdsState;
  /** The newest `available_at` given out, Unix milliseconds; it never goes back. */
  readonly availableAtMs: number;
  /** The commitId of the commit that gave it out; absent where it was made before that was written down. */
  readonly availableBy?: string;
  /** The repairs of the clock so far, oldest first. */
  readonly restamps?: readonly Restamp[];
  /** The lake was restored from the backup of this time, ISO 8601, and nothing has been read from a stream since. */
  readonly restoredFrom?: string;
}

/** The totals of a lake that has seen nothing. */
export const emptyTotals: Totals = { streamed: 0, stored: 0, failed: 0, repeats: 0, erased: 0 };

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Finds the service's part of a commit; undefined when another engine wrote it (or it cannot be trusted). */
export function findLakeState(info: CommitInfoAction | undefined): LakeState | undefined {
  const state = info?.tributary as Partial<LakeState> | undefined | null;
  if (typeof state !== 'object' || state === null) return undefined;
  const { totals, epoch } = state;
  if (
    typeof state.commitId !== 'string' ||
    !isCount(state.availableAtMs) ||
    typeof totals !== 'object' ||
    totals === null
  )
    return undefined;
  if (!Object.keys(emptyTotals).every((name) => isCount(totals[name as keyof Totals]))) return undefined;
  if (
    epoch !== undefined &&
    !(
      typeof epoch.appId === 'string' &&
      typeof epoch.streamId === 'string' &&
      isCount(epoch.position) &&
      isCount(epoch.dedupeThrough) &&
      isCount(epoch.watermarkMs ?? 0)
    )
  ) {
    return undefined;
  }
  return state as LakeState;
}

/**
 * The apps that erasures took rows of, in the state of a log: an older version is refused to those who would read such
 * rows, and to nobody else, so that the erasures of one account show to no other. Pure.
 */

type Erasures = Pick<LakeState, 'forgetBefore' | 'erasing' | 'erasedBefore'>;

/** Apps that are told apart; of more, the versions of the earliest erasures count for all apps. */
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

/** Versions of the service before 0.4 did not say of which apps rows were erased: then of any. */
function erasedSoFar({ erasedBefore, forgetBefore }: Erasures): Readonly<Record<string, number>> {
  return erasedBefore ?? (forgetBefore === undefined ? {} : { [all]: forgetBefore });
}

/**
 * The members of the next state. `erasedApps`: the apps that an erasure's commit takes rows of; undefined: any of them.
 * `forgetBefore`: the version that the last commit of the erasure names.
 */
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

/** What erasures leave of older versions to a reader of some apps; undefined: of all. */
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

/**
 * What holds from each commit of this service to the next. Both sides of the log assert it, in constant time: the
 * writer before a commit is linked, and whoever means to write when it has read one. A failure is a fault of the
 * service, since bytes that have changed on the disk are known by their checksum: it ends in an error, and in no commit
 * on top.
 */

/** The totals that never go back. */
const growing = ['streamed', 'repeats', 'erased'] as const satisfies readonly (keyof Totals)[];

/** Asserts that every event is accounted for, that the position goes forward, and that the times keep their order. */
export function assertFollows(before: LakeState, after: LakeState): void {
  const change = Object.fromEntries(
    Object.keys(emptyTotals).map((name) => [
      name,
      after.totals[name as keyof Totals] - before.totals[name as keyof Totals],
    ]),
  ) as unknown as Totals;
  assert(
    change.streamed === change.stored + change.failed + change.repeats + change.erased,
    `a commit (${after.cause}) does not account for its events: ${JSON.stringify(change)}`,
  );
  for (const name of growing) assert(change[name] >= 0, `a commit (${after.cause}) takes ${-change[name]} off ${name}`);
  for (const [name, total] of Object.entries(after.totals))
    assert(Number.isSafeInteger(total) && total >= 0, `a commit (${after.cause}) leaves ${total} ${name}`);

  const [was, is] = [before.epoch, after.epoch];
  assert(was === undefined || is !== undefined, `a commit (${after.cause}) forgets the position`);
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

/** Asserts that the two places of the log that hold the position agree; `txns`: positions by their appId. */
export function assertPosition({ epoch }: LakeState, txns: ReadonlyMap<string, number>): void {
  if (epoch === undefined) return;
  assert(
    txns.get(epoch.appId) === epoch.position,
    `the position of ${epoch.appId} is ${epoch.position} in the lake's state, and ${txns.get(epoch.appId)} in the table's`,
  );
}

/**
 * `available_at` orders the rows for whoever reads them bit by bit: every commit that brings rows has a later one than
 * all before it, whatever the clock does. After a clock that was ahead, the values go on from there by a millisecond a
 * commit.
 */

/** A clock that is further behind than this was wrong before, or is now; time servers correct by less, milliseconds. */
export const clockToleranceMs = 5 * 60_000;

/** The `available_at` of the next commit that brings rows, Unix milliseconds. */
export function nextAvailableAtMs(clock: Clock, lake: LakeState): number {
  return Math.max(clock.nowMs(), lake.availableAtMs + 1);
}

/** Says whether a time that was given in the past lies so far in the future that a clock must be wrong. */
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

/** Describes an `available_at` that lies ahead of the clock; `since`: when that was seen first, ISO 8601. */
export function describeClock(availableAtMs: number, nowMs: number, since?: string): Problem {
  return {
    code: 'clock_behind_lake',
    what: `the newest available_at of the lake, ${new Date(availableAtMs).toISOString()}, is ${describeSpan(availableAtMs - nowMs)} ahead of this machine's clock${since === undefined ? '' : `, seen since ${since}`}: the clock was ahead when rows were stored, or is behind now; filters by availability miss new rows`,
    todo: "Set the clock right if it is behind; otherwise run 'tributary lake repair', which gives those rows a time that has passed, in the same order. Nothing is lost meanwhile.",
  };
}

/**
 * What the log says of each load for ever, also when the commit that brought its rows has long been trimmed: a txn
 * action, which checkpoints keep. The load's id stands for the content of its file and for what was asked of it.
 */

/**
 * `loaded`: its rows are in the table, or were repeats of what is there. `review`: so they were, and a load that had
 * some of the same rows was undone since: loading the file again looks through its rows anew. `undone`: its rows were
 * taken out.
 */
export const loadStatuses = ['loaded', 'review', 'undone'] as const;
export type LoadStatus = (typeof loadStatuses)[number];

export interface LoadState {
  /** How often the file was loaded, undone loads among them; from 1. */
  readonly generation: number;
  readonly status: LoadStatus;
}

const prefix = 'load/';
const statusCount = 4;

/** The state of a load; undefined when there never was one of this id. */
export function findLoadState(txns: ReadonlyMap<string, number>, loadId: string): LoadState | undefined {
  const version = txns.get(prefix + loadId);
  return version === undefined ? undefined : parseState(version);
}

function parseState(version: number): LoadState | undefined {
  const status = loadStatuses[version % statusCount];
  return status === undefined ? undefined : { generation: Math.floor(version / statusCount), status };
}

/** Says whether nothing was done to a load between two states of it. */
export function isSameLoadState(one: LoadState | undefined, other: LoadState | undefined): boolean {
  return one?.generation === other?.generation && one?.status === other?.status;
}

/** Every load that the log knows, by id. */
export function listLoadStates(txns: ReadonlyMap<string, number>): ReadonlyMap<string, LoadState> {
  return new Map(
    [...txns].flatMap(([appId, version]) => {
      const state = appId.startsWith(prefix) ? parseState(version) : undefined;
      return state === undefined ? [] : [[appId.slice(prefix.length), state] as const];
    }),
  );
}

/** The action that keeps the state of a load. */
export function toLoadTxn(loadId: string, { generation, status }: LoadState, nowMs: number): TxnAction {
  const version = generation * statusCount + loadStatuses.indexOf(status);
  return { appId: prefix + loadId, version, lastUpdated: nowMs };
}
