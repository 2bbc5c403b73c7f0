import path from 'node:path';
import { decodePath, type Action, assertProtocol, findInfo } from './actions.ts';
import {
  isOwnEncoding,
  toDataFile,
  describeState,
  toSnapshot,
  type DataFile,
  type Snapshot,
  loadOwnState,
} from './snapshot.ts';
import {
  type TableState,
  changesTable,
  foreignError,
  toForeignCommit,
  type ForeignCommit,
  applyCommit,
  replayCommit,
} from './table-state.ts';
import { AppError } from '../../runtime/errors.ts';
import { assertContinuity, assertPosition, findLakeState, type LakeState, findStateOf } from './lake-state.ts';
import { hashCommit, renderCommit, type Commit, findCommit } from './log-files.ts';

/** An incrementally updated snapshot. Flushes need it often and must not iterate over all live files. */
export interface SnapshotView {
  current(): Snapshot;
  /** Records actions that are about to be applied to the state. */
  note(actions: readonly Action[]): void;
}

/** The new file of each changed path, if any. */
type Changes = ReadonlyMap<string, DataFile | undefined>;

function findIndex(files: readonly DataFile[], name: string, from: number): number {
  let [low, high] = [from, files.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    const file = files[middle];
    if (file !== undefined && file.path < name) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function replaceFiles(files: readonly DataFile[], changes: Changes): DataFile[] {
  const replaced: DataFile[] = [];
  let from = 0;
  const copyTo = (end: number): void => {
    for (; from < end; from += 1) {
      const file = files[from];
      if (file !== undefined) replaced.push(file);
    }
  };
  for (const [name, file] of [...changes].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    copyTo(findIndex(files, name, from));
    if (files[from]?.path === name) from += 1;
    if (file !== undefined) replaced.push(file);
  }
  copyTo(files.length);
  return replaced;
}

export function createSnapshotView(tableDir: string, state: Readonly<TableState>): SnapshotView {
  let snapshot: Snapshot | undefined;
  let changedPaths = new Set<string>();
  /** A path in another encoding may name a file twice. Such a log is sorted each time. */
  let hasOwnEncoding = true;

  function build(): Snapshot {
    hasOwnEncoding &&=
      snapshot === undefined ? [...state.files.keys()].every(isOwnEncoding) : [...changedPaths].every(isOwnEncoding);
    if (snapshot === undefined || !hasOwnEncoding) return toSnapshot(tableDir, state);
    const changes = new Map(
      [...changedPaths].map((encoded) => {
        const add = state.files.get(encoded);
        return [decodePath(encoded) ?? encoded, add === undefined ? undefined : toDataFile(tableDir, add)] as const;
      }),
    );
    return describeState(tableDir, state, replaceFiles(snapshot.files, changes));
  }

  return {
    current() {
      if (snapshot?.version === state.version) return snapshot;
      snapshot = build();
      changedPaths = new Set();
      return snapshot;
    },
    note(actions) {
      if (snapshot === undefined) return;
      for (const { add, remove } of actions) {
        if (add !== undefined) changedPaths.add(add.path);
        if (remove !== undefined) changedPaths.add(remove.path);
      }
    },
  };
}

/** A table whose log a writer reads commit by commit. */
export interface LogTailer {
  readonly state: TableState;
  lake(): LakeState;
  /** Returns the snapshot of the newest version, cached until the next one. */
  snapshot(): Snapshot;
  /** Returns the foreign commit at which reading stopped, if any. */
  foreign(): ForeignCommit | undefined;
  /** Reads other writers' commits, up to a foreign one. Errors: `foreign_commit`, `log_damaged`, `lake_protocol`. */
  refresh(): Promise<void>;
  /** Applies a commit that the caller has written. */
  apply(actions: readonly Action[]): void;
}

function requireLake(state: TableState): LakeState {
  const lake = findLakeState(state.lastCommit);
  if (lake === undefined) {
    throw new AppError(
      'lake_protocol',
      `the lake's log has no readable commit of this service up to version ${state.version}`,
      {
        hint: 'Restore the log from a backup: another engine created the table, or removed the commits of this service.',
      },
    );
  }
  return lake;
}

/** Applies commits, and asserts that they follow the state. */
function follow(state: TableState, commits: readonly Commit[]): void {
  const before = requireLake(state);
  for (const commit of commits) replayCommit(state, commit);
  const after = requireLake(state);
  assertContinuity(before, after);
  assertPosition(after, state.txns);
}

/** Loads the newest state of an existing table. Errors: those of `loadOwnState`. */
export async function openLogTailer(tableDir: string): Promise<LogTailer> {
  const { state, foreign: found } = await loadOwnState(tableDir);
  assertPosition(requireLake(state), state.txns);
  const view = createSnapshotView(path.resolve(tableDir), state);
  let foreign = found;
  return {
    state,
    lake: () => requireLake(state),
    snapshot: () => view.current(),
    foreign: () => foreign,
    async refresh() {
      let held: Commit[] = [];
      for (;;) {
        const commit = await findCommit(tableDir, state.version + 1 + held.length);
        if (commit === undefined) break;
        const lake = findStateOf(commit.actions);
        held.push(commit);
        // From a foreign change on, commits are held until one with the cause `repair`.
        if (held.length > 1 ? lake?.cause !== 'repair' : lake === undefined && changesTable(commit.actions)) continue;
        for (const { actions } of held) view.note(actions);
        follow(state, held);
        held = [];
        assertProtocol(state.protocol);
      }
      const [first] = held;
      foreign = first === undefined ? undefined : toForeignCommit(first.version, findInfo(first.actions));
      if (foreign !== undefined) throw foreignError(foreign);
    },
    apply(actions) {
      view.note(actions);
      applyCommit(state, state.version + 1, actions, hashCommit(renderCommit(actions)));
    },
  };
}
