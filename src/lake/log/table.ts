/**
 * Writes the Delta log of a table. Independent of datasets.
 *
 * In: a function that derives the change from the newest state. Out: a durable log entry, or an error.
 * Invariant: an entry is written to a temporary file, fsynced and linked to the next number, which fails if it is
 * taken. Of two writers one succeeds, and the other builds its change again. Each entry has a checksum and the hash of
 * the previous one.
 * Crash: an entry is written atomically. The next start of the compactor removes temporaries. A missing checkpoint
 * (checkpoint.ts) costs only time.
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
  assertContinuity,
  assertPosition,
  findLakeState,
  perTotal,
  type CommitCause,
  type Epoch,
  type ErasedIdsState,
  type ErasureListState,
  type LakeState,
  type Totals,
} from './lake-state.ts';
import { commitName, renderCommit, logStore } from './log-files.ts';
import type { ForeignCommit, TableState } from './table-state.ts';
import { openLogTailer, type LogTailer } from './log-tailer.ts';
import type { Snapshot } from './snapshot.ts';

export const commitSteps = ['commit-written', 'commit-linked', 'commit-synced'] as const;

/** The `add`, `remove`, `txn` and `metaData` actions of a commit. The table adds the provenance. */
export interface Change {
  readonly cause: CommitCause;
  readonly actions: readonly Action[];
  /** Increments of the totals. */
  readonly totals?: Partial<Totals>;
  readonly epoch?: Epoch;
  readonly writer?: string;
  /** Set by an erasure, with `forgetAtMs` (lake-state.ts). */
  readonly forgetBefore?: number;
  readonly forgetAtMs?: number;
  /** Apps whose rows an erasure removes; absent: any. */
  readonly erasedApps?: readonly number[];
  readonly erasedIds?: ErasedIdsState | undefined;
  readonly erasures?: ErasureListState | undefined;
  readonly expiryDay?: string;
  readonly availableAtMs?: number;
  readonly addsKeys?: boolean;
  /** Resets the newest `available_at`, if the table has no later one (lake/repair/restamp.ts). */
  readonly availableAtBackToMs?: number;
  /** With it: the newest `available_at` that the change was based on. A later one prevents the reset. */
  readonly availableAtBackFromMs?: number;
  /** With it: the file of the changed times, relative to the table's folder. */
  readonly restampSteps?: string;
  /** Time of the restored backup, ISO 8601. */
  readonly restoredFrom?: string;
  /** Figures for the history, such as rows and bytes. */
  readonly metrics?: Readonly<Record<string, string | number>>;
}

/** Returns the change for the newest state. Throws `fenced` or, to repeat the work, `commit_conflict`. */
export type BuildChange = (state: Readonly<TableState>, lake: LakeState) => Change;

/** A table open for writing. Commits of a process are serialized. */
export interface Table {
  readonly dir: string;
  /** Returns the newest known version. The next commit or refresh changes the object. */
  state(): Readonly<TableState>;
  lake(): LakeState;
  snapshot(): Snapshot;
  foreign(): ForeignCommit | undefined;
  refresh(): Promise<void>;
  /** Commits durably after all other writers. `mayLink` is called last, and throws to prevent the commit. */
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
    // A starting compactor removed the temporary: the caller retries.
    if (!isLinked && isSystemError(error, 'ENOENT')) return false;
    throw error;
  }
  await crashPoint('commit-synced');
  return true;
}

interface Stamp {
  readonly version: number;
  readonly commitId: string;
  readonly nowMs: number;
  readonly previous: string | undefined;
}

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

export function toCommitInfo(before: LakeState, change: Change, stamp: Stamp): CommitInfoAction {
  const { commitId, nowMs, previous } = stamp;
  const add = change.totals ?? {};
  const totals = { ...before.totals, ...perTotal((name) => before.totals[name] + (add[name] ?? 0)) };
  const epoch = change.epoch ?? before.epoch;
  const writer = change.writer ?? before.writer;
  const { forgetBefore, forgetAtMs } = change.forgetBefore === undefined ? before : change;
  const erasedIds = change.erasedIds ?? before.erasedIds;
  const erasures = change.erasures ?? before.erasures;
  const expiryDay = change.expiryDay ?? before.expiryDay;
  const keysCommit = change.addsKeys === true ? commitId : before.keysCommit;
  // Reading a stream completes the restore.
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
    ...(erasures === undefined ? {} : { erasures }),
    ...(expiryDay === undefined ? {} : { expiryDay }),
    ...moveTimes(before, change, stamp),
    ...(restoredFrom === undefined ? {} : { restoredFrom }),
  };
  assert(
    change.availableAtMs === undefined || change.availableAtMs >= before.availableAtMs,
    'available_at must be later than that of all earlier rows',
  );
  assertContinuity(before, lake);
  return {
    timestamp: nowMs,
    operation: change.cause.toUpperCase(),
    operationParameters: change.metrics ?? {},
    engineInfo,
    txnId: commitId,
    tributary: lake,
  };
}

/** Dates a removal from its commit, so that readers keep its files for the whole retention. */
function stampRemoval(action: Action, deletionTimestamp: number): Action {
  return action.remove === undefined ? action : { ...action, remove: { ...action.remove, deletionTimestamp } };
}

function toActions(
  tailer: LogTailer,
  change: Change,
  { commitId, nowMs }: Pick<Stamp, 'commitId' | 'nowMs'>,
): Action[] {
  const { state } = tailer;
  const stamp = { version: state.version + 1, commitId, nowMs, previous: state.lastHash };
  const commitInfo = toCommitInfo(tailer.lake(), change, stamp);
  const after = findLakeState(commitInfo);
  assert(after !== undefined, 'the commit must be recognizable as one of this service');
  const moved = change.actions.flatMap(({ txn }) => (txn === undefined ? [] : [[txn.appId, txn.version] as const]));
  assertPosition(after, new Map([...state.txns, ...moved]));
  return [{ commitInfo }, ...change.actions.map((action) => stampRemoval(action, nowMs))];
}

/** The newest commit is never trimmed. If it is missing, this process is outdated. */
async function assertNotTrimmed(tableDir: string, version: number): Promise<void> {
  if ((await logStore(tableDir).findSize(commitName(version))) !== undefined) return;
  throw new AppError('fenced', `version ${version} is missing from the lake's log`, {
    hint: 'Start the compactor again.',
  });
}

interface Order {
  readonly build: BuildChange;
  readonly commitId: string;
  readonly mayLink: (() => void) | undefined;
}

async function commitOnTop(
  tableDir: string,
  tailer: LogTailer,
  { clock, crashPoint }: TableOptions,
  { build, commitId, mayLink }: Order,
): Promise<LakeState> {
  const { state } = tailer;
  for (let attempt = 0; attempt < maxAttempts; attempt += 1) {
    await tailer.refresh();
    if (tailer.lake().commitId === commitId) return tailer.lake();
    await assertNotTrimmed(tableDir, state.version);
    const actions = toActions(tailer, build(state, tailer.lake()), { commitId, nowMs: clock.nowMs() });
    if (!(await linkCommit(tableDir, state.version + 1, actions, crashPoint, mayLink))) continue;
    tailer.apply(actions);
    return tailer.lake();
  }
  throw new AppError('commit_conflict', `cannot commit to the lake after ${maxAttempts} attempts`, {
    hint: 'Check that no other engine or service commits to the lake, then retry.',
  });
}

/** Opens an existing table, in which foreign commits block commits. Errors: those of `loadOwnState`. */
export async function openTable(tableDir: string, options: TableOptions): Promise<Table> {
  const tailer = await openLogTailer(tableDir);
  const { state } = tailer;
  const mutex = createMutex();
  return {
    dir: path.resolve(tableDir),
    state: () => state,
    lake: () => tailer.lake(),
    foreign: () => tailer.foreign(),
    snapshot: () => tailer.snapshot(),
    refresh: () => mutex.run(() => tailer.refresh()),
    commit: (build, commitId = randomUUID(), mayLink) =>
      mutex.run(() => commitOnTop(tableDir, tailer, options, { build, commitId, mayLink })),
  };
}
