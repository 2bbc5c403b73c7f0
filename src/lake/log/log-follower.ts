import path from 'node:path';
import { decodePath, type Action, type CommitInfoAction, assertProtocol } from './actions.ts';
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
import { AppError, isSystemError } from '../../runtime/errors.ts';
import { assertFollows, assertPosition, findLakeState, type LakeState } from './lake-state.ts';
import { hashCommit, readCommit, renderCommit, type Commit } from './log-files.ts';

/**
 * The snapshot of a table that goes on commit by commit: the same as `toSnapshot` makes of the whole state, made from
 * the snapshot before and what the commits since have named. A flush asks for it again and again, and must not pay for
 * each live file.
 */
export interface SnapshotView {
  /** The snapshot of the state as it is. Errors: as `toSnapshot`. */
  current(): Snapshot;
  /** Told of actions that are to be applied to the state. */
  note(actions: readonly Action[]): void;
}

/** What has become of a path: the file that it names now, if any. */
type Changes = ReadonlyMap<string, DataFile | undefined>;

/** The first place in a list, sorted by path, whose path is not before this one. */
function findPlace(files: readonly DataFile[], name: string, from: number): number {
  let [low, high] = [from, files.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    const file = files[middle];
    if (file !== undefined && file.path < name) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Replaces, adds and takes out files in a list that is sorted by path and has each path once. */
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
    copyTo(findPlace(files, name, from));
    if (files[from]?.path === name) from += 1;
    if (file !== undefined) replaced.push(file);
  }
  copyTo(files.length);
  return replaced;
}

/** Creates the view of a state; `tableDir` is absolute. */
export function createSnapshotView(tableDir: string, state: Readonly<TableState>): SnapshotView {
  let snapshot: Snapshot | undefined;
  /** Encoded paths that commits since that snapshot have named. */
  let named = new Set<string>();
  /** A path in another encoding may stand beside one that means the same file: such a log is sorted anew each time. */
  let isOwn = true;

  function build(): Snapshot {
    isOwn &&= snapshot === undefined ? [...state.files.keys()].every(isOwnEncoding) : [...named].every(isOwnEncoding);
    if (snapshot === undefined || !isOwn) return toSnapshot(tableDir, state);
    const changes = new Map(
      [...named].map((encoded) => {
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
      named = new Set();
      return snapshot;
    },
    note(actions) {
      if (snapshot === undefined) return;
      for (const { add, remove } of actions) {
        if (add !== undefined) named.add(add.path);
        if (remove !== undefined) named.add(remove.path);
      }
    },
  };
}

/** A table as a process that means to write it knows it: it follows the log, commit by commit. */
export interface LogFollower {
  /** Changed by `refresh` and `apply` only. */
  readonly state: TableState;
  /** The service's own part of the newest commit. */
  lake(): LakeState;
  /** The snapshot of the newest version; the same object until the next. Errors: as `toSnapshot`. */
  snapshot(): Snapshot;
  /** The commit of another engine at which the last refresh has stopped; the state stays at the version before it. */
  foreign(): ForeignCommit | undefined;
  /**
   * Takes in what other writers have committed, up to a commit by which another engine has changed the table, and
   * beyond it once it is repaired. Errors: `foreign_commit`, `log_damaged`, `lake_protocol`.
   */
  refresh(): Promise<void>;
  /** Takes in a commit that this process has made, as the next version. */
  apply(actions: readonly Action[]): void;
}

function findInfo({ actions }: Commit): CommitInfoAction | undefined {
  return actions.find((action) => action.commitInfo !== undefined)?.commitInfo;
}

async function findCommit(tableDir: string, version: number): Promise<Commit | undefined> {
  try {
    return await readCommit(tableDir, version);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
}

function requireLake(state: TableState): LakeState {
  const lake = findLakeState(state.lastCommit);
  if (lake === undefined) {
    throw new AppError(
      'lake_protocol',
      `the lake's log up to version ${state.version} has no commit of this service that could be read`,
      {
        hint: 'Another engine made the table, or its clean-up removed the commits of this service: restore the log from a backup.',
      },
    );
  }
  return lake;
}

/** Takes commits that were read into the state, and asserts that they follow what was known. */
function follow(state: TableState, commits: readonly Commit[]): void {
  const before = requireLake(state);
  for (const commit of commits) replayCommit(state, commit);
  // What another engine has done to the position in between, a repair has undone.
  const after = requireLake(state);
  assertFollows(before, after);
  assertPosition(after, state.txns);
}

/** Loads the newest state of a table that exists. Errors: those of `loadOwnState`. */
export async function openLogFollower(tableDir: string): Promise<LogFollower> {
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
        const lake = findLakeState(findInfo(commit));
        held.push(commit);
        if (held.length > 1 ? lake?.cause !== 'repair' : lake === undefined && changesTable(commit.actions)) continue;
        for (const { actions } of held) view.note(actions);
        follow(state, held);
        held = [];
        assertProtocol(state.protocol);
      }
      const [first] = held;
      foreign = first === undefined ? undefined : toForeignCommit(first.version, findInfo(first));
      if (foreign !== undefined) throw foreignError(foreign);
    },
    apply(actions) {
      view.note(actions);
      applyCommit(state, state.version + 1, actions, hashCommit(renderCommit(actions)));
    },
  };
}
