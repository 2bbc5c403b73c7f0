import { AppError } from '../../runtime/errors.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import {
  type Action,
  type CommitInfoAction,
  parseStats,
  type AddAction,
  type MetaDataAction,
  type ProtocolAction,
  type RemoveAction,
} from './actions.ts';
import { isYoungPath } from './young-folder.ts';
import { findLakeState } from './lake-state.ts';
import type { Commit } from './log-files.ts';

/**
 * Commits of other engines. Only this service may write the table, and the table's protocol says so (actions.ts); a
 * writer that does not look at it may commit all the same. A commit that changes nothing, such as those of a VACUUM, is
 * read over. One that changes the table stops every writer of ours at the version before it, until `tributary lake
 * repair` has brought the table on by a commit of cause `repair`; readers of ours answer from that version meanwhile.
 */
export interface ForeignCommit {
  readonly version: number;
  /** As the engine names itself. */
  readonly engine: string;
  /** Such as `OPTIMIZE`. */
  readonly operation: string;
  /** ISO 8601, by that engine's clock; undefined when it left it out. */
  readonly at: string | undefined;
}

/** Says whether a commit changes the table: its files, its columns, its protocol or a position. */
export function changesTable(actions: readonly Action[]): boolean {
  return actions.some((action) => action.commitInfo === undefined);
}

function isTime(value: unknown): value is number {
  return typeof value === 'number' && Math.abs(value) <= 8.64e15;
}

function shorten(value: unknown): string {
  return typeof value === 'string' && value !== '' ? value.slice(0, 80) : 'unknown';
}

/** Describes a commit of another engine by what it says about itself; a stranger's text is cut short. */
export function toForeignCommit(version: number, info: CommitInfoAction | undefined): ForeignCommit {
  return {
    version,
    engine: shorten(info?.engineInfo),
    operation: shorten(info?.operation),
    at: isTime(info?.timestamp) ? new Date(info.timestamp).toISOString() : undefined,
  };
}

/**
 * The problem that a foreign commit is, with the next step. `table` names a table beside that of the events, into which
 * nothing waits to be flushed.
 */
export function describeForeign({ version, engine, operation, at }: ForeignCommit, table?: string): Problem {
  if (table !== undefined)
    return {
      code: 'foreign_commit',
      subject: table,
      what: `another engine (${engine}) has changed the lake's table ${table}: version ${version}, ${operation}, at ${at ?? 'an unknown time'}; nothing is written to it, and exports read version ${version - 1}`,
      todo: "Stop that engine's job, then run 'tributary lake repair': it brings the table back by a new commit.",
    };
  return {
    code: 'foreign_commit',
    what: `another engine (${engine}) has changed the lake's table: version ${version}, ${operation}, at ${at ?? 'an unknown time'}; events wait in the stream, and exports read version ${version - 1}`,
    todo: "Stop that engine's job, then run 'tributary lake repair': it brings the table back by a new commit, and everything goes on by itself. Nothing acknowledged is lost.",
  };
}

/** The error of whoever would write a table that another engine has changed. */
export function foreignError(foreign: ForeignCommit): AppError {
  const { what, todo } = describeForeign(foreign);
  return new AppError('foreign_commit', what, { hint: todo });
}

/**
 * What the live files of a table add up to, carried on from commit to commit: whoever asks, as often as he likes, pays
 * nothing for each file.
 */
export interface TableSize {
  /** Those whose writer has said how many they have. */
  rows: number;
  bytes: number;
  youngFiles: number;
  sealedFiles: number;
}

/** The size of a table without files. */
export function createTableSize(): TableSize {
  return { rows: 0, bytes: 0, youngFiles: 0, sealedFiles: 0 };
}

/** How the statistics of a file of ours begin: to parse all of them for the first number would keep a start waiting. */
const firstNumber = /^\{"numRecords":(\d+)[,}]/;

function findRows({ stats }: AddAction): number {
  const rows = firstNumber.exec(stats ?? '')?.[1] ?? parseStats(stats).numRecords;
  return Number.isSafeInteger(Number(rows)) ? Number(rows) : 0;
}

/** Counts a file in, or out. */
export function addToSize(size: TableSize, file: AddAction, sign: 1 | -1): void {
  size.rows += sign * findRows(file);
  size.bytes += sign * file.size;
  if (isYoungPath(file.path)) size.youngFiles += sign;
  else size.sealedFiles += sign;
}

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
