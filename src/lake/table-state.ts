import { AppError } from '../runtime/errors.ts';
import { findLakeState } from './lake-state.ts';
import type { Commit } from './log-files.ts';
import type { Action, AddAction, CommitInfoAction, MetaDataAction, ProtocolAction, RemoveAction } from './actions.ts';

/** The table as the log tells it at one version: the log replayed up to there. Changed only by `applyCommit`. */
export interface TableState {
  version: number;
  protocol: ProtocolAction | undefined;
  metaData: MetaDataAction | undefined;
  /** Live files by encoded path. */
  readonly files: Map<string, AddAction>;
  /** Removed files whose removal the log still remembers, by encoded path. */
  readonly tombstones: Map<string, RemoveAction>;
  readonly txns: Map<string, number>;
  /** Provenance of the commit at `version`; undefined when another engine left it out. */
  lastCommit: CommitInfoAction | undefined;
  /** Hash of the commit at `version`, hex; undefined when its JSON is not there. */
  lastHash: string | undefined;
}

/** A table before its first commit. */
export function createTableState(): TableState {
  return { version: -1, protocol: undefined, metaData: undefined, files: new Map(), tombstones: new Map(), txns: new Map(), lastCommit: undefined, lastHash: undefined };
}

/** Applies the actions of the commit, or the checkpoint, of one version. `sha256`: the hash of a commit's bytes. */
export function applyCommit(state: TableState, version: number, actions: readonly Action[], sha256?: string): void {
  state.version = version;
  state.lastCommit = undefined;
  state.lastHash = sha256;
  for (const action of actions) {
    if (action.protocol !== undefined) state.protocol = action.protocol;
    if (action.metaData !== undefined) state.metaData = action.metaData;
    if (action.txn !== undefined) state.txns.set(action.txn.appId, action.txn.version);
    if (action.commitInfo !== undefined) state.lastCommit = action.commitInfo;
    if (action.add !== undefined) {
      state.files.set(action.add.path, action.add);
      state.tombstones.delete(action.add.path);
    }
    if (action.remove !== undefined) {
      state.files.delete(action.remove.path);
      state.tombstones.set(action.remove.path, action.remove);
    }
  }
}

/** Applies a commit that was read from the log. Errors: `corrupt` when the commit before is not the one that this one follows. */
export function replayCommit(state: TableState, { version, actions, sha256 }: Commit): void {
  const previous = findLakeState(actions.find((action) => action.commitInfo !== undefined)?.commitInfo)?.previous;
  if (state.version === version - 1 && state.lastHash !== undefined && previous !== undefined && previous !== state.lastHash) {
    throw new AppError('corrupt', `version ${version - 1} of the lake's log is not what version ${version} follows`, { hint: 'Run tributary lake check.' });
  }
  applyCommit(state, version, actions, sha256);
}

/** Refuses a table that another engine raised to a protocol this code does not know. */
export function assertProtocol(state: TableState): void {
  const { protocol } = state;
  if (protocol !== undefined && (protocol.minReaderVersion > 1 || protocol.minWriterVersion > 2)) {
    throw new AppError('lake_protocol', `the lake's table asks for reader ${protocol.minReaderVersion} and writer ${protocol.minWriterVersion}; this service knows 1 and 2`, {
      hint: 'Another engine changed the table. Restore the log from before that, or load the files into a new lake.',
    });
  }
}

/** Copies a state, so that it can be worked on while commits go on. */
export function copyTableState(state: Readonly<TableState>): TableState {
  return { ...state, files: new Map(state.files), tombstones: new Map(state.tombstones), txns: new Map(state.txns) };
}
