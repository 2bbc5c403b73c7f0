import path from 'node:path';
import { AppError, isAppError, isStoreError, isSystemError } from '../../runtime/errors.ts';
import {
  decodePath,
  parseStats,
  type AddAction,
  type AddFilter,
  type FileStats,
  assertProtocol,
  findInfo,
  logDamaged,
} from './actions.ts';
import { publishedPathOf } from './young-folder.ts';
import { readCheckpoint } from './checkpoint.ts';
import {
  changesTable,
  foreignError,
  toForeignCommit,
  type ForeignCommit,
  applyActions,
  createTableState,
  replayCommit,
  type TableState,
} from './table-state.ts';
import { findLakeState, type LakeState } from './lake-state.ts';
import { listLog, readCommit, checkpointName, type Commit, logStore, commitName, findCommit } from './log-files.ts';
import { missingObject } from '../../runtime/store/object-store.ts';
import type { StoredFile } from '../../runtime/store/open-store.ts';

/** Paths that need no decoding, as nearly all of this service's: no scheme and no dot segment. */
const plainPath = /^(?:[\w=-][\w=.-]*\/)*[\w=-][\w=.-]*$/;

const nothing = {};

/**
 * Returns when the file shown at the path of a rewrite, or the files that a merge replaces, left the table, Unix ms.
 * Version 0.3 does not record it.
 */
function sinceOf({ tags, modificationTime }: AddAction): number | undefined {
  const since = tags?.['since'];
  if (typeof since === 'string') return Number(since);
  return typeof tags?.['replaces'] === 'string' ? modificationTime : undefined;
}

/** A live file. Its statistics are parsed on demand, since few are used. */
class LiveFile implements DataFile {
  readonly path: string;
  readonly absolutePath: string;
  readonly sizeBytes: number;
  readonly sha256: string | undefined;
  readonly groups: string | undefined;
  readonly keyless: boolean;
  readonly young: boolean;
  readonly publishedPath: string | undefined;
  readonly sinceMs: number | undefined;
  readonly #add: AddAction;
  #stats: FileStats | undefined;

  constructor(add: AddAction, relative: string, absolutePath: string) {
    this.path = relative;
    this.absolutePath = absolutePath;
    this.sizeBytes = add.size;
    this.sha256 = add.tags?.['sha256'];
    this.groups = add.tags?.['groups'];
    this.keyless = add.tags?.['keyed'] === '0';
    this.publishedPath = publishedPathOf(relative, add.tags);
    this.young = this.publishedPath === undefined;
    this.sinceMs = sinceOf(add);
    this.#add = add;
  }

  get numRecords(): number | undefined {
    const { numRecords } = this.#parse();
    return typeof numRecords === 'number' ? numRecords : undefined;
  }

  get minValues(): Readonly<Record<string, unknown>> {
    return this.#parse().minValues ?? nothing;
  }

  get maxValues(): Readonly<Record<string, unknown>> {
    return this.#parse().maxValues ?? nothing;
  }

  #parse(): FileStats {
    return (this.#stats ??= parseStats(this.#add.stats));
  }
}

/** Converts an add. `root`: the table's absolute folder. Error: `lake_protocol` for a path outside the table. */
export function toDataFile(root: string, add: AddAction): DataFile {
  if (plainPath.test(add.path)) return new LiveFile(add, add.path, `${root}${path.sep}${add.path}`);
  const relative = decodePath(add.path);
  const absolutePath = relative === undefined ? root : path.resolve(root, relative);
  if (relative === undefined || /^[a-z][a-z0-9+.-]+:/i.test(relative) || !absolutePath.startsWith(root + path.sep)) {
    throw new AppError('lake_protocol', `the log names a file outside the table: ${add.path}`, {
      hint: 'Load the rows of the file with an import: another engine added it.',
    });
  }
  return new LiveFile(add, relative, absolutePath);
}

/** Reports whether a path is encoded as this service does, which is unique per file. */
export function isOwnEncoding(encoded: string): boolean {
  if (plainPath.test(encoded)) return true;
  const relative = decodePath(encoded);
  return relative !== undefined && encodeURI(relative) === encoded;
}

export interface DataFile {
  /** Relative to the table's folder, URL-decoded. */
  readonly path: string;
  readonly absolutePath: string;
  readonly sizeBytes: number;
  readonly numRecords: number | undefined;
  /** Statistics by column. Timestamps are ISO 8601. Absent columns are unknown. */
  readonly minValues: Readonly<Record<string, unknown>>;
  readonly maxValues: Readonly<Record<string, unknown>>;
  /** SHA-256 of its bytes, hex; undefined for a file of another engine. */
  readonly sha256: string | undefined;
  /** Mark of its row groups' hashes (lake/files/row-group-hashes.ts). */
  readonly groups?: string | undefined;
  /** Whether none of its events was stored under an Idempotency-Key. */
  readonly keyless?: boolean;
  /** Whether the file is not sealed. It is then outside the documented glob. */
  readonly young: boolean;
  /** The path at which readers of folders find a sealed file's rows, relative to the table's folder. */
  readonly publishedPath?: string | undefined;
  /** When the file shown at the path of this rewrite, or those that a merge replaced, left the table, Unix ms. */
  readonly sinceMs?: number | undefined;
}

/** A table at one version. Files are sorted by path, so that reads are reproducible. */
export interface Snapshot {
  readonly version: number;
  readonly tableDir: string;
  readonly files: readonly DataFile[];
  readonly young: readonly DataFile[];
  /** Positions by txn appId. */
  readonly txns: ReadonlyMap<string, number>;
  /** The service's part of its newest commit; undefined for a missing table or another engine's. */
  readonly lake: LakeState | undefined;
  readonly foreign: ForeignCommit | undefined;
  /** Absolute path of a Parquet file without rows. Read first, it gives older files later columns as NULL. */
  readonly emptyFile: string;
  /** SHA-256 (hex) of the commit of this version; undefined if missing. */
  readonly head: string | undefined;
  readonly schemaString: string | undefined;
  /** `metaData.id` of the table. That of the events table is the lake's id. */
  readonly tableId: string | undefined;
}

/** The underscore hides it from readers of folders and from other engines' VACUUM. */
export const emptyFileName = '_columns.parquet';

export function emptyFilePath(tableDir: string): string {
  return path.join(tableDir, emptyFileName);
}

/** Returns the stored files of a read that needs every column of the table: the empty file first, then the others. */
export function withEmptyFile(
  { emptyFile }: Pick<Snapshot, 'emptyFile'>,
  files: readonly StoredFile[] = [],
): readonly StoredFile[] {
  return [{ absolutePath: emptyFile }, ...files];
}

export function describeState(
  root: string,
  state: Readonly<TableState>,
  files: readonly DataFile[],
  foreign?: ForeignCommit,
): Snapshot {
  return {
    version: state.version,
    tableDir: root,
    files,
    young: files.filter((file) => file.young),
    txns: new Map(state.txns),
    lake: findLakeState(state.lastCommit),
    foreign,
    emptyFile: emptyFilePath(root),
    head: state.lastHash,
    schemaString: state.metaData?.schemaString,
    tableId: state.metaData?.id,
  };
}

/** Converts a replayed log. `foreign`: a later foreign commit. */
export function toSnapshot(tableDir: string, state: Readonly<TableState>, foreign?: ForeignCommit): Snapshot {
  const root = path.resolve(tableDir);
  const files = [...state.files.values()].map((add) => toDataFile(root, add));
  return describeState(
    root,
    state,
    files.toSorted((a, b) => (a.path < b.path ? -1 : 1)),
    foreign,
  );
}

async function loadFromCheckpoint(
  tableDir: string,
  state: TableState,
  version: number,
  needed: AddFilter | undefined,
): Promise<void> {
  // Loaded on demand: the ingest process reads no checkpoint.
  const { openDuckdb } = await import('../sql/duckdb.ts');
  const duckdb = await openDuckdb({ memoryMb: 256, threads: needed === undefined ? 1 : 2 });
  try {
    await readCheckpoint(duckdb, tableDir, version, (actions) => applyActions(state, version, actions), needed);
    state.version = version;
  } catch (error) {
    if (isAppError(error, 'log_damaged') || isStoreError(error)) throw error;
    const store = logStore(tableDir);
    const file = store.nameOf(checkpointName(version));
    // Trimmed since it was listed: the ENOENT makes the caller list again.
    const isGone = (await store.findSize(checkpointName(version))) === undefined;
    throw logDamaged(`cannot read ${file}`, isGone ? missingObject(file) : error);
  } finally {
    duckdb.close();
  }
}

/** Reads the listed commits after the state's version. Error: `log_damaged` if one is missing. */
export async function catchUp(tableDir: string, state: TableState, commits: readonly number[]): Promise<void> {
  const listed = new Set(commits);
  const newest = commits.at(-1) ?? -1;
  const read = async (version: number): Promise<Commit> => {
    const commit = await findCommit(tableDir, version);
    if (commit !== undefined) return commit;
    // Trimmed since it was listed.
    if (listed.has(version)) throw missingObject(commitName(version));
    throw logDamaged(`the log lacks version ${version}`);
  };
  while (state.version < newest) {
    const count = Math.min(64, newest - state.version);
    const batch = await Promise.all(Array.from({ length: count }, (_, index) => read(state.version + 1 + index)));
    for (const commit of batch) replayCommit(state, commit);
  }
}

/** Adds provenance to a state from a checkpoint: that of this service's newest commit, and later foreign commits. */
async function readProvenance(tableDir: string, state: TableState, commits: readonly number[]): Promise<void> {
  let foreign: ForeignCommit | undefined;
  for (let version = state.version; commits.includes(version); version -= 1) {
    const { actions, sha256 } = await readCommit(tableDir, version);
    if (version === state.version) state.lastHash = sha256;
    const info = findInfo(actions);
    const lake = findLakeState(info);
    // The first half of a repair does not revert the foreign change.
    if (lake !== undefined && lake.cause !== 'reset') {
      state.lastCommit = info;
      state.foreign = foreign;
      return;
    }
    if (changesTable(actions)) foreign = toForeignCommit(version, info);
  }
}

async function loadFrom(
  tableDir: string,
  checkpoint: number | undefined,
  commits: readonly number[],
  needed: AddFilter | undefined,
): Promise<TableState> {
  const state = createTableState();
  if (checkpoint === undefined && (commits[0] ?? 0) > 0)
    throw logDamaged('the log has neither version 0 nor a checkpoint');
  if (checkpoint !== undefined && !(checkpoint === 0 && commits[0] === 0)) {
    await loadFromCheckpoint(tableDir, state, checkpoint, needed);
    await readProvenance(tableDir, state, commits);
  }
  await catchUp(tableDir, state, commits);
  return state;
}

/** Replays the log from its newest checkpoint. If that is damaged, starts at an earlier one or at version 0. */
async function tryLoad(tableDir: string, upTo: number, needed: AddFilter | undefined): Promise<TableState> {
  const listed = await listLog(tableDir);
  const commits = listed.commits.filter((version) => version <= upTo);
  const checkpoints = listed.checkpoints.filter((version) => version <= upTo);
  try {
    return await loadFrom(tableDir, checkpoints.at(-1), commits, needed);
  } catch (error) {
    if (!isAppError(error, 'log_damaged') || isSystemError(error.cause, 'ENOENT')) throw error;
    // A checkpoint after the last commit shows that commits are missing.
    const newest = Math.max(commits.at(-1) ?? -1, checkpoints.at(-1) ?? -1);
    const starts = [...checkpoints.slice(0, -1).toReversed(), ...(commits[0] === 0 ? [undefined] : [])];
    const isWhole = (start = 0): boolean => commits.filter((version) => version >= start).length === newest - start + 1;
    for (const start of starts.filter(isWhole)) {
      const state = await loadFrom(tableDir, start, commits, needed).catch(() => undefined);
      if (state !== undefined) return state;
    }
    throw error;
  }
}

/**
 * Replays the log of any writers up to a version. Repeats after a concurrent trim. `needed`: files that it does not
 * match may be left out, also of the totals, and removed files. Error: `log_damaged`.
 */
export async function loadTableState(
  tableDir: string,
  upTo = Number.MAX_SAFE_INTEGER,
  needed?: AddFilter,
): Promise<TableState> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await tryLoad(tableDir, upTo, needed);
    } catch (error) {
      const trimmed =
        isSystemError(error, 'ENOENT') || (isAppError(error, 'log_damaged') && isSystemError(error.cause, 'ENOENT'));
      // A concurrent listing may have a commit and not the previous one.
      const maybeMislisted = attempt === 1 && isAppError(error, 'log_damaged');
      if (!(trimmed || maybeMislisted) || attempt === 5) throw error;
    }
  }
}

/** The newest state of this service, and a later foreign commit. */
export interface OwnState {
  readonly state: TableState;
  readonly foreign: ForeignCommit | undefined;
}

/**
 * Loads the newest version without foreign changes. `needed`: as in `loadTableState`. Errors: `log_damaged`,
 * `lake_protocol`, `foreign_commit`.
 */
export async function loadOwnState(tableDir: string, needed?: AddFilter): Promise<OwnState> {
  const newest = await loadTableState(tableDir, undefined, needed);
  const { foreign } = newest;
  if (foreign === undefined) {
    assertProtocol(newest.protocol);
    return { state: newest, foreign };
  }
  const state = await loadTableState(tableDir, foreign.version - 1, needed).catch((error: unknown) => {
    if (!isAppError(error, 'log_damaged')) throw error;
    throw new AppError('foreign_commit', foreignError(foreign).message, {
      cause: error,
      hint: 'Restore the lake from a backup: the log no longer has the version before it.',
    });
  });
  assertProtocol(state.protocol);
  return { state, foreign };
}

/**
 * Reads the newest snapshot of a table: every row committed before the call, none twice. The retention keeps its files.
 * Version -1 if the table does not exist. `needed`: files that it does not match may be left out, which saves a reader of
 * a large log most of the time and memory. Errors: those of `loadOwnState`.
 */
export async function readSnapshot(tableDir: string, needed?: AddFilter): Promise<Snapshot> {
  const { state, foreign } = await loadOwnState(tableDir, needed);
  return toSnapshot(tableDir, state, foreign);
}
