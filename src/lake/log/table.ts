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
import { createExclusive, type CreateOptions } from '../../runtime/files/durable-file.ts';
import { AppError, isSystemError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Action, CommitInfoAction } from './actions.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';
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
import { commitName, logFolder, renderCommit } from './log-files.ts';
import type { ForeignCommit, TableState } from './table-state.ts';
import { openLogFollower, type LogFollower } from './log-follower.ts';
import type { Snapshot } from './snapshot.ts';

/** The steps of a commit at which a crash is tested. */
export const commitSteps = ['commit-written', 'commit-linked', 'commit-synced'] as const;

/** What one commit changes. `add`, `remove`, `txn` and `metaData` actions; provenance is added by the table. */
export interface Change {
  readonly cause: CommitCause;
  readonly actions: readonly Action[];
  /** Added to the running totals. */
  readonly totals?: Partial<Totals>;
  readonly epoch?: Epoch;
  readonly writer?: string;
  /** With `forgetAtMs`, an erasure's; see lake-state.ts. */
  readonly forgetBefore?: number;
  readonly forgetAtMs?: number;
  /** Of an erasure: the apps that it takes rows of; absent: any. */
  readonly erasedApps?: readonly number[];
  readonly erasedIds?: ErasedIdsState | undefined;
  readonly availableAtMs?: number;
  /** The commit adds events under Idempotency-Keys. */
  readonly addsKeys?: boolean;
  /**
   * Sets the newest `available_at` back to this: only by the commit that leaves no later one in the table
   * (lake/repair/restamp.ts).
   */
  readonly availableAtBackToMs?: number;
  /**
   * With it: the newest `available_at` that the change was made for. Where others have given out a later one by then, it
   * is not set back, for their rows have it.
   */
  readonly availableAtBackFromMs?: number;
  /** With it: the file that says what became of each time, relative to the table's folder. */
  readonly restampSteps?: string;
  /** The lake has just been restored from the backup of this time, ISO 8601. */
  readonly restoredFrom?: string;
  /** Figures for the history, such as rows and bytes. */
  readonly metrics?: Readonly<Record<string, string | number>>;
}

/**
 * Looks at the table as it is at the instant of the commit and says what to change, or throws: `fenced` when another
 * compactor has moved the position, `commit_conflict` when the work has to be done again.
 */
export type BuildChange = (state: Readonly<TableState>, lake: LakeState) => Change;

/**
 * The table open for writing. Commits of one process run one after the other; those of several are settled by link(2).
 */
export interface Table {
  readonly dir: string;
  /** The newest version this process knows of. Do not keep it: it changes with the next commit or refresh. */
  state(): Readonly<TableState>;
  lake(): LakeState;
  snapshot(): Snapshot;
  /** The commit of another engine at which the last refresh has stopped; the table stays at the version before it. */
  foreign(): ForeignCommit | undefined;
  /**
   * Takes in what other writers have committed. Errors: `foreign_commit` where another engine has changed the table.
   */
  refresh(): Promise<void>;
  /**
   * Commits durably, on top of whatever other writers have committed meanwhile; `commitId` tells the commit from all
   * others. `mayLink` throws when the commit may not be made any more: it is asked at the last instant.
   */
  commit(build: BuildChange, commitId?: string, mayLink?: () => void): Promise<LakeState>;
}

export interface TableOptions {
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

const engineInfo = `tributary/${findBuild().version}`;
const maxAttempts = 100;

/**
 * Writes a temporary, fsyncs it and links it to the name of the version, unless `mayLink` throws; false when that
 * version is taken.
 */
export async function linkCommit(
  tableDir: string,
  version: number,
  actions: readonly Action[],
  crashPoint: CrashPoint,
  mayLink?: () => void,
): Promise<boolean> {
  const folder = logFolder(tableDir);
  let isLinked = false;
  const steps: CreateOptions = {
    mode: tableFileMode,
    temporary: path.join(folder, `.${commitName(version)}.${randomUUID()}.tmp`),
    async onWritten() {
      await crashPoint('commit-written');
      mayLink?.();
    },
    async onLinked() {
      isLinked = true;
      await crashPoint('commit-linked');
    },
  };
  try {
    if ((await createExclusive(path.join(folder, commitName(version)), renderCommit(actions), steps)) === 'exists')
      return false;
  } catch (error) {
    // Another compactor's start swept our temporary: the caller tries again.
    if (!isLinked && isSystemError(error, 'ENOENT')) return false;
    throw error;
  }
  await crashPoint('commit-synced');
  return true;
}

interface Stamp {
  /** The version that the commit makes. */
  readonly version: number;
  readonly commitId: string;
  readonly nowMs: number;
  /** Hash of the commit before. */
  readonly previous: string | undefined;
}

/** How the times of rows stand after a change. */
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

/** Builds the provenance of a commit from the state before it and what it changes. */
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
  // Once the stream was read, the two are together again.
  const restoredFrom = change.restoredFrom ?? (change.epoch === undefined ? before.restoredFrom : undefined);
  const lake: LakeState = {
    commitId,
    cause: change.cause,
    ...(previous === undefined ? {} : { previous }),
    // The commits of an erasure that take rows out come before the one that says which versions go.
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
 * Lets a removal count from its commit, however long before the work on it has begun: whoever reads the version before
 * has its files for the whole retention.
 */
function stampRemoval(action: Action, deletionTimestamp: number): Action {
  return action.remove === undefined ? action : { ...action, remove: { ...action.remove, deletionTimestamp } };
}

/** Renders the next version, and asserts that it follows the state that it is built on. */
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

/** The newest commit is never trimmed. Without it, others have gone on long ago, and the next number means nothing. */
async function assertNotTrimmed(tableDir: string, version: number): Promise<void> {
  if (await exists(path.join(logFolder(tableDir), commitName(version)))) return;
  throw new AppError('fenced', `version ${version} of the lake's table is gone from the log`, {
    hint: 'Start the compactor again.',
  });
}

/** A commit that is asked for. */
interface Order {
  readonly build: BuildChange;
  readonly commitId: string;
  readonly mayLink: (() => void) | undefined;
}

/** Commits on top of whatever others commit meanwhile. */
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
 * Opens a table that exists. Where another engine has changed it, commits fail until it is repaired. Errors: those of
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
