import path from 'node:path';
import { AppError, isSystemError } from '../../runtime/errors.ts';
import type { Action, CommitInfoAction } from './actions.ts';
import { assertFollows, assertPosition } from './continuity.ts';
import { changesTable, foreignError, toForeignCommit, type ForeignCommit } from './foreign-commit.ts';
import { findLakeState, type LakeState } from './lake-state.ts';
import { hashCommit, readCommit, renderCommit, type Commit } from './log-files.ts';
import { assertProtocol } from './protocol.ts';
import { createSnapshotView } from './snapshot-view.ts';
import { loadOwnState, type Snapshot } from './snapshot.ts';
import { applyCommit, replayCommit, type TableState } from './table-state.ts';

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
