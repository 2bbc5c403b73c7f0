import path from 'node:path';
import { access } from 'node:fs/promises';
import { AppError, isAppError, isSystemError } from '../../runtime/errors.ts';
import { decodePath, parseStats, type AddAction, type FileStats, assertProtocol } from './actions.ts';
import { placeOf } from './young-folder.ts';
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
import { listLog, logFolder, readCommit, checkpointName, type Commit } from './log-files.ts';

/**
 * Names that mean the same to the log and to the file system, as nearly all of ours do: nothing encoded, no scheme, and
 * no segment that a path would be resolved by.
 */
const plainPath = /^(?:[\w=-][\w=.-]*\/)*[\w=-][\w=.-]*$/;

const nothing = {};

/** When the file at the place of a rewrite left the table; a rewrite of version 0.3 does not name the time. */
function sinceOf({ tags, modificationTime }: AddAction): number | undefined {
  const since = tags?.['since'];
  if (typeof since === 'string') return Number(since);
  return typeof tags?.['replaces'] === 'string' ? modificationTime : undefined;
}

/** A live file as its add describes it. The statistics are parsed when they are first asked for: few ever are. */
class LiveFile implements DataFile {
  readonly path: string;
  readonly absolutePath: string;
  readonly sizeBytes: number;
  readonly sha256: string | undefined;
  readonly keyless: boolean;
  readonly young: boolean;
  readonly place: string | undefined;
  readonly sinceMs: number | undefined;
  readonly #add: AddAction;
  #stats: FileStats | undefined;

  constructor(add: AddAction, relative: string, absolutePath: string) {
    this.path = relative;
    this.absolutePath = absolutePath;
    this.sizeBytes = add.size;
    this.sha256 = add.tags?.['sha256'];
    this.keyless = add.tags?.['keyed'] === '0';
    this.place = placeOf(relative, add.tags);
    this.young = this.place === undefined;
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

/**
 * Makes what readers use of an add; `root` is the table's folder, absolute. Errors: `lake_protocol` where the log names
 * a file outside the table.
 */
export function toDataFile(root: string, add: AddAction): DataFile {
  if (plainPath.test(add.path)) return new LiveFile(add, add.path, `${root}${path.sep}${add.path}`);
  const relative = decodePath(add.path);
  const absolutePath = relative === undefined ? root : path.resolve(root, relative);
  if (relative === undefined || /^[a-z][a-z0-9+.-]+:/i.test(relative) || !absolutePath.startsWith(root + path.sep)) {
    throw new AppError('lake_protocol', `the log names a file outside the table: ${add.path}`, {
      hint: 'Another engine added it; copy the file into the lake by an import.',
    });
  }
  return new LiveFile(add, relative, absolutePath);
}

/** Says whether a path stands in the log as this service writes it: then no other text in the log means the same file. */
export function isOwnEncoding(encoded: string): boolean {
  if (plainPath.test(encoded)) return true;
  const relative = decodePath(encoded);
  return relative !== undefined && encodeURI(relative) === encoded;
}

/** One live Parquet file of the table. */
export interface DataFile {
  /** Relative to the table's folder, URL-decoded, with `/`. */
  readonly path: string;
  readonly absolutePath: string;
  readonly sizeBytes: number;
  /** Rows; undefined when the writer left it out. */
  readonly numRecords: number | undefined;
  /** Statistics by column as the log has them; timestamps are ISO 8601 text. A column that is absent is unknown. */
  readonly minValues: Readonly<Record<string, unknown>>;
  readonly maxValues: Readonly<Record<string, unknown>>;
  /** Hash of its bytes, hex; undefined when another engine wrote it. */
  readonly sha256: string | undefined;
  /** Surely none of its events was stored under an Idempotency-Key. */
  readonly keyless?: boolean;
  /** The file is a flush of its own, not sealed yet: it lies in the young folder, outside the documented glob. */
  readonly young: boolean;
  /** Where readers of folders find the rows of a sealed file, relative to the table's folder; absent of a young one. */
  readonly place?: string | undefined;
  /** Of a rewrite: when the file that is shown at its place left the table, Unix milliseconds. */
  readonly sinceMs?: number | undefined;
}

/** The table at one version. Files are sorted by path, so that the same snapshot always reads the same way. */
export interface Snapshot {
  /** -1: the table does not exist yet. */
  readonly version: number;
  readonly tableDir: string;
  readonly files: readonly DataFile[];
  /** Those of them that are not sealed yet. */
  readonly young: readonly DataFile[];
  /** Position by txn appId. */
  readonly txns: ReadonlyMap<string, number>;
  /**
   * The service's own part of its newest commit; undefined on a table that does not exist or that another engine made.
   */
  readonly lake: LakeState | undefined;
  /** The commit of another engine that came after this version and has changed the table; undefined: there is none. */
  readonly foreign: ForeignCommit | undefined;
  /**
   * Absolute path of an empty Parquet file with every column of the table. Put it first in a read_parquet list with
   * `union_by_name`: the list is never empty then, and files from before a column was added read it as NULL.
   */
  readonly emptyFile: string;
  /** SHA-256 (hex) of the log's entry at this version, which names that of the one before; undefined: it is not there. */
  readonly head: string | undefined;
  /** The columns of the table, by which a damaged empty file is known; undefined on a table that does not exist. */
  readonly schemaString: string | undefined;
  /** The id of the table (`metaData.id`); that of the events is the lake's. */
  readonly tableId: string | undefined;
}

/**
 * Name of the empty Parquet file; the leading underscore hides it from readers of folders and other engines' clean-up.
 */
export const emptyFileName = '_columns.parquet';

/** The empty Parquet file of a table. */
export function emptyFilePath(tableDir: string): string {
  return path.join(tableDir, emptyFileName);
}

/** A snapshot of a state whose live files are already known: `files`, sorted by path. */
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

/** Turns a replayed log into what readers use; `foreign`: what another engine has made of the table since. */
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

async function loadFromCheckpoint(tableDir: string, state: TableState, version: number): Promise<void> {
  // Only who reads a checkpoint needs the engine: the import does not.
  const { openDuckdb } = await import('../sql/duckdb.ts');
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  try {
    for await (const actions of readCheckpoint(duckdb, tableDir, version)) applyActions(state, version, actions);
    state.version = version;
  } catch (error) {
    if (isAppError(error, 'log_damaged')) throw error;
    const file = path.join(logFolder(tableDir), checkpointName(version));
    // Trimmed since it was listed: the caller lists again, and knows it by the ENOENT.
    const gone = await access(file).then(
      () => undefined,
      (missing: unknown) => missing,
    );
    throw new AppError('log_damaged', `cannot read ${file}`, {
      cause: gone ?? error,
      hint: "Run 'tributary lake check', and restore what it names from a backup.",
    });
  } finally {
    duckdb.close();
  }
}

/**
 * Reads the commits that follow the state's version, up to the last of those listed. A listing that is made while commits
 * come may show one and not the one before it. Errors: `log_damaged` when one is missing in between.
 */
export async function catchUp(tableDir: string, state: TableState, commits: readonly number[]): Promise<void> {
  const listed = new Set(commits);
  const newest = commits.at(-1) ?? -1;
  const read = async (version: number): Promise<Commit> => {
    try {
      return await readCommit(tableDir, version);
    } catch (error) {
      // One that was listed was trimmed since.
      if (listed.has(version) || !isSystemError(error, 'ENOENT')) throw error;
      throw new AppError('log_damaged', `the log lacks version ${version}`, {
        hint: "Run 'tributary lake check', and restore what it names from a backup.",
      });
    }
  };
  while (state.version < newest) {
    const count = Math.min(64, newest - state.version);
    const batch = await Promise.all(Array.from({ length: count }, (_, index) => read(state.version + 1 + index)));
    for (const commit of batch) replayCommit(state, commit);
  }
}

/**
 * Completes a state that was loaded from a checkpoint, which has no provenance: that of the newest commit of ours up to
 * there, and what other engines have committed since. The commit of each checkpoint of ours is kept for it.
 */
async function readProvenance(tableDir: string, state: TableState, commits: readonly number[]): Promise<void> {
  let foreign: ForeignCommit | undefined;
  for (let version = state.version; commits.includes(version); version -= 1) {
    const { actions, sha256 } = await readCommit(tableDir, version);
    if (version === state.version) state.lastHash = sha256;
    const info = actions.find((action) => action.commitInfo !== undefined)?.commitInfo;
    const lake = findLakeState(info);
    // The first half of a repair leaves the other engine's change as it is.
    if (lake !== undefined && lake.cause !== 'reset') {
      state.lastCommit = info;
      state.foreign = foreign;
      return;
    }
    if (changesTable(actions)) foreign = toForeignCommit(version, info);
  }
}

/** Replays the log from one checkpoint, or from version 0 when there is none. */
async function loadFrom(
  tableDir: string,
  checkpoint: number | undefined,
  commits: readonly number[],
): Promise<TableState> {
  const state = createTableState();
  if (checkpoint === undefined && (commits[0] ?? 0) > 0)
    throw new AppError('log_damaged', 'the log has neither version 0 nor a checkpoint', {
      hint: "Run 'tributary lake check', and restore what it names from a backup.",
    });
  if (checkpoint !== undefined && !(checkpoint === 0 && commits[0] === 0)) {
    await loadFromCheckpoint(tableDir, state, checkpoint);
    await readProvenance(tableDir, state, commits);
  }
  await catchUp(tableDir, state, commits);
  return state;
}

/**
 * Replays the log from its newest checkpoint, or from an earlier one, or from version 0, when that is damaged and the
 * commits since are all there.
 */
async function tryLoad(tableDir: string, upTo: number): Promise<TableState> {
  const listed = await listLog(tableDir);
  const commits = listed.commits.filter((version) => version <= upTo);
  const checkpoints = listed.checkpoints.filter((version) => version <= upTo);
  try {
    return await loadFrom(tableDir, checkpoints.at(-1), commits);
  } catch (error) {
    if (!isAppError(error, 'log_damaged') || isSystemError(error.cause, 'ENOENT')) throw error;
    // A checkpoint past the last commit shows that commits are gone: what they said must not be forgotten.
    const newest = Math.max(commits.at(-1) ?? -1, checkpoints.at(-1) ?? -1);
    const starts = [...checkpoints.slice(0, -1).toReversed(), ...(commits[0] === 0 ? [undefined] : [])];
    const isWhole = (start = 0): boolean => commits.filter((version) => version >= start).length === newest - start + 1;
    for (const start of starts.filter(isWhole)) {
      const state = await loadFrom(tableDir, start, commits).catch(() => undefined);
      if (state !== undefined) return state;
    }
    throw error;
  }
}

/**
 * Replays the log from its newest checkpoint, whoever wrote its commits; `upTo` travels back to an older version that
 * the log still has. A log trimmed while it was read is listed again. Errors: `log_damaged`.
 */
export async function loadTableState(tableDir: string, upTo = Number.MAX_SAFE_INTEGER): Promise<TableState> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await tryLoad(tableDir, upTo);
    } catch (error) {
      const trimmed =
        isSystemError(error, 'ENOENT') || (isAppError(error, 'log_damaged') && isSystemError(error.cause, 'ENOENT'));
      // A listing made while the folder changes may show a commit and not the one before it.
      const maybeMislisted = attempt === 1 && isAppError(error, 'log_damaged');
      if (!(trimmed || maybeMislisted) || attempt === 5) throw error;
    }
  }
}

/** The table as this service has left it, and the commit by which another engine has changed it since. */
export interface OwnState {
  readonly state: TableState;
  readonly foreign: ForeignCommit | undefined;
}

/**
 * Loads the newest version that stands on commits of ours alone; of other engines, only those that change nothing.
 * Errors: `log_damaged`, `lake_protocol`, `foreign_commit` when the log no longer has what came before another engine's
 * change.
 */
export async function loadOwnState(tableDir: string): Promise<OwnState> {
  const newest = await loadTableState(tableDir);
  const { foreign } = newest;
  if (foreign === undefined) {
    assertProtocol(newest.protocol);
    return { state: newest, foreign };
  }
  const state = await loadTableState(tableDir, foreign.version - 1).catch((error: unknown) => {
    if (!isAppError(error, 'log_damaged')) throw error;
    throw new AppError('foreign_commit', foreignError(foreign).message, {
      cause: error,
      hint: 'The log no longer has the version before it: restore the lake from a backup.',
    });
  });
  assertProtocol(state.protocol);
  return { state, foreign };
}

/**
 * Reads the newest snapshot of a table: every row committed before the call, none twice. Works while the compactor
 * runs; the files of the snapshot stay on disk for the lake's retention. A table that does not exist has version -1 and
 * no files. Where another engine has changed the table, it is the snapshot before that. Errors: those of
 * `loadOwnState`.
 */
export async function readSnapshot(tableDir: string): Promise<Snapshot> {
  const { state, foreign } = await loadOwnState(tableDir);
  return toSnapshot(tableDir, state, foreign);
}
