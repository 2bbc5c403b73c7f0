/**
 * The Delta log of a table: commits, and the state that they add up to. Knows no dataset.
 *
 * In: a function that looks at the newest state and says what to change. Out: one durable entry of the log, or an
 * error.
 * Invariant: an entry is written to a temporary, fsynced and linked to the next number, which fails where that number
 * is taken: of two writers one wins, and the other decides anew on top of it. Each entry has a checksum and names the
 * hash of the one before.
 * Crash: an entry is there whole or not at all; a temporary in the log's folder is swept at the next start of the
 * compactor. A checkpoint (checkpoint.ts) repeats what the log says, and one that is missing costs time only.
 */
import { createMutex } from '../../runtime/async/semaphore.ts';
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { AppError, isSystemError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Action, CommitInfoAction } from './actions.ts';
import { findBuild } from '../../runtime/files/package-files.ts';
import {
  moveErasures,
  assertFollows,
  assertPosition,
  findLakeState,
  type CommitCause,
  type Epoch,
  type ErasedIdsState,
  type LakeState,
  type Totals,
} from './lake-state.ts';
import { commitName, renderCommit, logStore } from './log-files.ts';
import type { ForeignCommit, TableState } from './table-state.ts';
import { openLogFollower, type LogFollower } from './log-follower.ts';
import type { Snapshot } from './snapshot.ts';

export const commitSteps = ['commit-written', 'commit-linked', 'commit-synced'] as const;

/** The change of one commit: `add`, `remove`, `txn` and `metaData` actions; the table adds the provenance. */
export interface Change {
  readonly cause: CommitCause;
  readonly actions: readonly Action[];
  /** Added to the running totals. */
  readonly totals?: Partial<Totals>;
  readonly epoch?: Epoch;
  readonly writer?: string;
  /** Of an erasure, with `forgetAtMs`; see lake-state.ts. */
  readonly forgetBefore?: number;
  readonly forgetAtMs?: number;
  /** Of an erasure: the apps whose rows it removes; absent: any. */
  readonly erasedApps?: readonly number[];
  readonly erasedIds?: ErasedIdsState | undefined;
  readonly availableAtMs?: number;
  /** Whether the commit adds events under Idempotency-Keys. */
  readonly addsKeys?: boolean;
  /**
   * Resets the newest `available_at` to this: only by a commit that leaves no later one in the table
   * (lake/repair/restamp.ts).
   */
  readonly availableAtBackToMs?: number;
  /**
   * With it: the newest `available_at` that the change was based on. If a later one was assigned since, nothing is
   * reset.
   */
  readonly availableAtBackFromMs?: number;
  /** With it: the file of the changed times, relative to the table's folder. */
  readonly restampSteps?: string;
  /** Time of the backup that the lake was restored from, ISO 8601. */
  readonly restoredFrom?: string;
  /** Figures for the history, such as rows and bytes. */
  readonly metrics?: Readonly<Record<string, string | number>>;
}

/**
 * Returns the change for the state at the instant of the commit, or throws: `fenced` if another compactor has moved the
 * position, `commit_conflict` if the work must be repeated.
 */
export type BuildChange = (state: Readonly<TableState>, lake: LakeState) => Change;

/**
 * A table open for writing. Commits of one process are serialized; those of several are decided by the creation of the
 * log entry.
 */
export interface Table {
  readonly dir: string;
  /** Returns the newest known version. The object changes with the next commit or refresh. */
  state(): Readonly<TableState>;
  lake(): LakeState;
  snapshot(): Snapshot;
  /**
   * Returns the commit of another engine at which the last refresh stopped; the table stays at the version before it.
   */
  foreign(): ForeignCommit | undefined;
  /** Reads the commits of other writers. Error: `foreign_commit` if another engine has changed the table. */
  refresh(): Promise<void>;
  /**
   * Commits durably on top of all other writers' commits; `commitId` identifies the commit. `mayLink` is called at the
   * last instant, and throws if the commit must not be made.
   */
  commit(build: BuildChange, commitId?: string, mayLink?: () => void): Promise<LakeState>;
}

export interface TableOptions {
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

const engineInfo = `tributary/${findBuild().version}`;
const maxAttempts = 100;

/** Creates the log entry of a version; false if it is taken. */
export async function linkCommit(
  tableDir: string,
  version: number,
  actions: readonly Action[],
  crashPoint: CrashPoint,
  mayLink?: () => void,
): Promise<boolean> {
  let isLinked = false;
  try {
    const result = await logStore(tableDir).create(commitName(version), Buffer.from(renderCommit(actions)), {
      async onWritten() {
        await crashPoint('commit-written');
        mayLink?.();
      },
      async onCreated() {
        isLinked = true;
        await crashPoint('commit-linked');
      },
    });
    if (result === 'exists') return false;
  } catch (error) {
    // The start of another compactor removed our temporary: the caller tries again.
    if (!isLinked && isSystemError(error, 'ENOENT')) return false;
    throw error;
  }
  await crashPoint('commit-synced');
  return true;
}

interface Stamp {
  /** The version of the commit. */
  readonly version: number;
  readonly commitId: string;
  readonly nowMs: number;
  /** Hash of the previous commit. */
  readonly previous: string | undefined;
}

/** Returns the times of rows after a change. */
function moveTimes(
  before: LakeState,
  { availableAtMs, availableAtBackToMs, availableAtBackFromMs, restampSteps }: Change,
  { version, commitId }: Stamp,
): Pick<LakeState, 'availableAtMs' | 'availableBy' | 'restamps'> {
  const isLater = (availableAtMs ?? 0) > before.availableAtMs;
  const availableBy = isLater ? commitId : before.availableBy;
  const steps = restampSteps === undefined ? {} : { steps: restampSteps };
  const upTo = availableAtBackFromMs === undefined ? {} : { upToMs: availableAtBackFromMs };
  const restamps =
    availableAtBackToMs === undefined
      ? before.restamps
      : [...(before.restamps ?? []), { version, toMs: availableAtBackToMs, ...upTo, ...steps }];
  const isSetBack = before.availableAtMs <= (availableAtBackFromMs ?? Infinity);
  const backToMs = isSetBack ? availableAtBackToMs : undefined;
  return {
    availableAtMs: backToMs ?? Math.max(before.availableAtMs, availableAtMs ?? 0),
    ...(availableBy === undefined ? {} : { availableBy }),
    ...(restamps === undefined ? {} : { restamps }),
  };
}

/** Builds the provenance of a commit from the state before it and its change. */
export function toCommitInfo(before: LakeState, change: Change, stamp: Stamp): CommitInfoAction {
  const { commitId, nowMs, previous } = stamp;
  const add = change.totals ?? {};
  const totals = Object.fromEntries(
    Object.entries(before.totals).map(([name, value]) => [name, value + (add[name as keyof Totals] ?? 0)]),
  ) as unknown as Totals;
  const epoch = change.epoch ?? before.epoch;
  const writer = change.writer ?? before.writer;
  const { forgetBefore, forgetAtMs } = change.forgetBefore === undefined ? before : change;
  const erasedIds = change.erasedIds ?? before.erasedIds;
  const keysCommit = change.addsKeys === true ? commitId : before.keysCommit;
  // Once a stream was read, the restore is complete.
  const restoredFrom = change.restoredFrom ?? (change.epoch === undefined ? before.restoredFrom : undefined);
  const lake: LakeState = {
    commitId,
    cause: change.cause,
    ...(previous === undefined ? {} : { previous }),
    // The commits of an erasure that remove rows precede the one that names the versions.
    ...moveErasures(before, change.cause === 'erase' && change.erasedIds === undefined, change),
    ...(forgetBefore === undefined ? {} : { forgetBefore }),
    ...(forgetAtMs === undefined ? {} : { forgetAtMs }),
    totals,
    ...(epoch === undefined ? {} : { epoch }),
    ...(writer === undefined ? {} : { writer }),
    ...(keysCommit === undefined ? {} : { keysCommit }),
    ...(erasedIds === undefined ? {} : { erasedIds }),
    ...moveTimes(before, change, stamp),
    ...(restoredFrom === undefined ? {} : { restoredFrom }),
  };
  assert(
    change.availableAtMs === undefined || change.availableAtMs >= before.availableAtMs,
    'rows are available after all before them',
  );
  assertFollows(before, lake);
  return {
    timestamp: nowMs,
    operation: change.cause.toUpperCase(),
    operationParameters: change.metrics ?? {},
    engineInfo,
    txnId: commitId,
    tributary: lake,
  };
}

/**
 * Dates a removal from its commit, however long the work took: readers of the previous version keep its files for the
 * whole retention.
 */
function stampRemoval(action: Action, deletionTimestamp: number): Action {
  return action.remove === undefined ? action : { ...action, remove: { ...action.remove, deletionTimestamp } };
}

/** Renders the next version, and asserts that it follows the state. */
function toActions(
  follower: LogFollower,
  change: Change,
  { commitId, nowMs }: Pick<Stamp, 'commitId' | 'nowMs'>,
): Action[] {
  const { state } = follower;
  const stamp = { version: state.version + 1, commitId, nowMs, previous: state.lastHash };
  const commitInfo = toCommitInfo(follower.lake(), change, stamp);
  const after = findLakeState(commitInfo);
  assert(after !== undefined, 'the commit would not be known as one of this service');
  const moved = change.actions.flatMap(({ txn }) => (txn === undefined ? [] : [[txn.appId, txn.version] as const]));
  assertPosition(after, new Map([...state.txns, ...moved]));
  return [{ commitInfo }, ...change.actions.map((action) => stampRemoval(action, nowMs))];
}

/**
 * The newest commit is never trimmed: if it is missing, others have long moved on, and the next number is meaningless.
 */
async function assertNotTrimmed(tableDir: string, version: number): Promise<void> {
  if ((await logStore(tableDir).findSize(commitName(version))) !== undefined) return;
  throw new AppError('fenced', `version ${version} of the lake's table is gone from the log`, {
    hint: 'Start the compactor again.',
  });
}

/** A requested commit. */
interface Order {
  readonly build: BuildChange;
  readonly commitId: string;
  readonly mayLink: (() => void) | undefined;
}

/** Commits on top of other writers' commits. */
async function commitOnTop(
  tableDir: string,
  follower: LogFollower,
  { clock, crashPoint }: TableOptions,
  { build, commitId, mayLink }: Order,
): Promise<LakeState> {
  const { state } = follower;
  for (let attempt = 0; attempt < maxAttempts; attempt += 1) {
    await follower.refresh();
    if (follower.lake().commitId === commitId) return follower.lake();
    await assertNotTrimmed(tableDir, state.version);
    const actions = toActions(follower, build(state, follower.lake()), { commitId, nowMs: clock.nowMs() });
    if (!(await linkCommit(tableDir, state.version + 1, actions, crashPoint, mayLink))) continue;
    follower.apply(actions);
    return follower.lake();
  }
  throw new AppError('commit_conflict', `could not commit to the lake in ${maxAttempts} attempts`, {
    hint: 'See whether another engine or service commits to it all the time; then repeat it.',
  });
}

/**
 * Opens an existing table. After a change by another engine, commits fail until it is repaired. Errors: those of
 * `loadOwnState`.
 */
export async function openTable(tableDir: string, options: TableOptions): Promise<Table> {
  const follower = await openLogFollower(tableDir);
  const { state } = follower;
  const mutex = createMutex();
  return {
    dir: path.resolve(tableDir),
    state: () => state,
    lake: () => follower.lake(),
    foreign: () => follower.foreign(),
    snapshot: () => follower.snapshot(),
    refresh: () => mutex.run(() => follower.refresh()),
    commit: (build, commitId = randomUUID(), mayLink) =>
      mutex.run(() => commitOnTop(tableDir, follower, options, { build, commitId, mayLink })),
  };
}
