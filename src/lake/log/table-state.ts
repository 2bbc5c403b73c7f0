import { AppError } from '../../runtime/errors.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import {
  type Action,
  type CommitInfoAction,
  parseStats,
  type AddAction,
  type MetaDataAction,
  type ProtocolAction,
  type RemoveAction,
  findInfo,
  logDamaged,
} from './actions.ts';
import { isYoungPath } from './young-folder.ts';
import { findLakeState, findStateOf } from './lake-state.ts';
import type { Commit } from './log-files.ts';

/**
 * Only other engines that ignore the protocol (actions.ts) make foreign commits. One without changes, such as that of a
 * VACUUM, is skipped. After one with changes, writers stop and readers use the previous version, until `tributary lake
 * repair`.
 */
export interface ForeignCommit {
  readonly version: number;
  readonly engine: string;
  readonly operation: string;
  /** ISO 8601, by that engine's clock. */
  readonly at: string | undefined;
}

/** Reports whether a commit changes files, columns, the protocol or a position. */
export function changesTable(actions: readonly Action[]): boolean {
  return actions.some((action) => action.commitInfo === undefined);
}

function isTime(value: unknown): value is number {
  return typeof value === 'number' && Math.abs(value) <= 8.64e15;
}

function shorten(value: unknown): string {
  return typeof value === 'string' && value !== '' ? value.slice(0, 80) : 'unknown';
}

/** Describes a foreign commit by its own, truncated fields. */
export function toForeignCommit(version: number, info: CommitInfoAction | undefined): ForeignCommit {
  return {
    version,
    engine: shorten(info?.engineInfo),
    operation: shorten(info?.operation),
    at: isTime(info?.timestamp) ? new Date(info.timestamp).toISOString() : undefined,
  };
}

/** Describes the problem of a foreign commit. `table`: a secondary table; flushes without its rows continue. */
export function describeForeign({ version, engine, operation, at }: ForeignCommit, table?: string): Problem {
  if (table !== undefined)
    return {
      code: 'foreign_commit',
      subject: table,
      message: `another engine (${engine}) has changed the lake's table ${table}: version ${version}, ${operation}, at ${at ?? 'an unknown time'}; flushes with rows for it wait, and exports read version ${version - 1}`,
      action: "Stop that engine's job, then run 'tributary lake repair', which reverts the change.",
    };
  return {
    code: 'foreign_commit',
    message: `another engine (${engine}) has changed the lake's table: version ${version}, ${operation}, at ${at ?? 'an unknown time'}; events wait in the stream, and exports read version ${version - 1}`,
    action:
      "Stop that engine's job, then run 'tributary lake repair', which reverts the change; the service then resumes. No acknowledged event is lost.",
  };
}

export function foreignError(foreign: ForeignCommit): AppError {
  const { message, action } = describeForeign(foreign);
  return new AppError('foreign_commit', message, { hint: action });
}

/** Totals of the live files, updated by each commit. */
export interface TableSize {
  /** Counts only files whose writer recorded them. */
  rows: number;
  bytes: number;
  youngFiles: number;
  sealedFiles: number;
}

export function createTableSize(): TableSize {
  return { rows: 0, bytes: 0, youngFiles: 0, sealedFiles: 0 };
}

/** The start of this service's statistics. Parsing all of them would delay a start. */
const firstNumber = /^\{"numRecords":(\d+)[,}]/;

function findRows({ stats }: AddAction): number {
  const rows = firstNumber.exec(stats ?? '')?.[1] ?? parseStats(stats).numRecords;
  return Number.isSafeInteger(Number(rows)) ? Number(rows) : 0;
}

function addToSize(size: TableSize, file: AddAction, sign: 1 | -1): void {
  size.rows += sign * findRows(file);
  size.bytes += sign * file.size;
  if (isYoungPath(file.path)) size.youngFiles += sign;
  else size.sealedFiles += sign;
}

/** A table at one version. Only `applyCommit` changes it. */
export interface TableState {
  version: number;
  protocol: ProtocolAction | undefined;
  metaData: MetaDataAction | undefined;
  /** By encoded path. */
  readonly files: Map<string, AddAction>;
  /** Removed files that the log still has, by encoded path. */
  readonly tombstones: Map<string, RemoveAction>;
  readonly size: TableSize;
  readonly txns: Map<string, number>;
  lastCommit: CommitInfoAction | undefined;
  foreign: ForeignCommit | undefined;
  /** SHA-256 of the commit at `version`, hex; undefined if it is missing. */
  lastHash: string | undefined;
}

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

export function applyCommit(state: TableState, version: number, actions: readonly Action[], sha256: string): void {
  const info = findInfo(actions);
  const lake = findLakeState(info);
  applyActions(state, version, actions);
  state.lastHash = sha256;
  if (lake !== undefined) state.lastCommit = info;
  else if (state.lastCommit !== undefined && changesTable(actions)) state.foreign ??= toForeignCommit(version, info);
  if (lake?.cause === 'repair') state.foreign = undefined;
}

/** Applies a commit of the log. Error: `log_damaged` if it does not follow the previous one. */
export function replayCommit(state: TableState, { version, actions, sha256 }: Commit): void {
  const previous = findStateOf(actions)?.previous;
  if (
    state.version === version - 1 &&
    state.lastHash !== undefined &&
    previous !== undefined &&
    previous !== state.lastHash
  ) {
    throw logDamaged(`version ${version} of the lake's log does not follow version ${version - 1}`);
  }
  applyCommit(state, version, actions, sha256);
}

export function copyTableState(state: Readonly<TableState>): TableState {
  return {
    ...state,
    files: new Map(state.files),
    tombstones: new Map(state.tombstones),
    size: { ...state.size },
    txns: new Map(state.txns),
  };
}
