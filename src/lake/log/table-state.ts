import { AppError } from '../../runtime/errors.ts';
import { changesTable, toForeignCommit, type ForeignCommit } from './foreign-commit.ts';
import { findLakeState } from './lake-state.ts';
import type { Commit } from './log-files.ts';
import { addToSize, createTableSize, type TableSize } from './table-size.ts';
import type { Action, AddAction, CommitInfoAction, MetaDataAction, ProtocolAction, RemoveAction } from './actions.ts';

/** The table as the log describes it at one version: the log replayed up to there. Changed only by `applyCommit`. */
export interface TableState {
  version: number;
  protocol: ProtocolAction | undefined;
  metaData: MetaDataAction | undefined;
  /** Live files by encoded path. */
  readonly files: Map<string, AddAction>;
  /** Removed files whose removal the log still remembers, by encoded path. */
  readonly tombstones: Map<string, RemoveAction>;
  /** What the live files add up to. */
  readonly size: TableSize;
  readonly txns: Map<string, number>;
  /** Provenance of the newest commit of ours; undefined when none is known. */
  lastCommit: CommitInfoAction | undefined;
  /** The first commit of another engine that has changed the table since, and is not repaired. */
  foreign: ForeignCommit | undefined;
  /** Hash of the commit at `version`, hex; undefined when its JSON is not there. */
  lastHash: string | undefined;
}

/** A table before its first commit. */
export function createTableState(): TableState {
  return {
    version: -1,
    protocol: undefined,
    metaData: undefined,
    files: new Map(),
    tombstones: new Map(),
    size: createTableSize(),
    txns: new Map(),
    lastCommit: undefined,
    foreign: undefined,
    lastHash: undefined,
  };
}

/** Applies the actions of a commit, or of a checkpoint, which has no provenance. */
export function applyActions(state: TableState, version: number, actions: readonly Action[]): void {
  state.version = version;
  for (const action of actions) {
    if (action.protocol !== undefined) state.protocol = action.protocol;
    if (action.metaData !== undefined) state.metaData = action.metaData;
    if (action.txn !== undefined) state.txns.set(action.txn.appId, action.txn.version);
    const replaced = state.files.get(action.add?.path ?? action.remove?.path ?? '');
    if (replaced !== undefined) addToSize(state.size, replaced, -1);
    if (action.add !== undefined) {
      addToSize(state.size, action.add, 1);
      state.files.set(action.add.path, action.add);
      state.tombstones.delete(action.add.path);
    }
    if (action.remove !== undefined) {
      state.files.delete(action.remove.path);
      state.tombstones.set(action.remove.path, action.remove);
    }
  }
}

/** Applies one commit; `sha256` is the hash of its bytes. */
export function applyCommit(state: TableState, version: number, actions: readonly Action[], sha256: string): void {
  const info = actions.find((action) => action.commitInfo !== undefined)?.commitInfo;
  const lake = findLakeState(info);
  applyActions(state, version, actions);
  state.lastHash = sha256;
  if (lake !== undefined) state.lastCommit = info;
  else if (state.lastCommit !== undefined && changesTable(actions)) state.foreign ??= toForeignCommit(version, info);
  if (lake?.cause === 'repair') state.foreign = undefined;
}

/**
 * Applies a commit that was read from the log. Errors: `log_damaged` when the commit before is not the one that this
 * one follows.
 */
export function replayCommit(state: TableState, { version, actions, sha256 }: Commit): void {
  const previous = findLakeState(actions.find((action) => action.commitInfo !== undefined)?.commitInfo)?.previous;
  if (
    state.version === version - 1 &&
    state.lastHash !== undefined &&
    previous !== undefined &&
    previous !== state.lastHash
  ) {
    throw new AppError(
      'log_damaged',
      `version ${version - 1} of the lake's log is not what version ${version} follows`,
      { hint: "Run 'tributary lake check', and restore what it names from a backup." },
    );
  }
  applyCommit(state, version, actions, sha256);
}

/** Copies a state, so that it can be worked on while commits go on. */
export function copyTableState(state: Readonly<TableState>): TableState {
  return {
    ...state,
    files: new Map(state.files),
    tombstones: new Map(state.tombstones),
    size: { ...state.size },
    txns: new Map(state.txns),
  };
}
