/**
 * Writes and verifies the files of a table.
 *
 * In: queries. Out: files with statistics and hash, for the log.
 * Invariant: a file is complete and fsynced before a commit names it. Its hash is verified before its rows are
 * rewritten. Its bytes never change.
 * Crash: the next start of the compactor removes files that no commit names.
 */
import type { ObjectStore } from '../../runtime/store/object-store.ts';
import path from 'node:path';
import { inParallel } from '../../runtime/async/in-parallel.ts';
import { removeFile, syncFile, syncFolder } from '../../runtime/files/durable-file.ts';
import { AppError, isAppError, isSystemError } from '../../runtime/errors.ts';
import type { AddAction, FileStats } from '../log/actions.ts';
import type { Duckdb, SqlRow } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { getSize, hashFile } from '../../runtime/files/file-checks.ts';
import { membersOf } from '../../runtime/files/checksummed-json.ts';
import { isText } from '../../runtime/store/shape.ts';
import { emptyFileName, type DataFile } from '../log/snapshot.ts';
import { logFolder, tableStore } from '../log/log-files.ts';
import { addRowGroupHashes, isLocalIntact, type RowsRead } from './row-group-hashes.ts';
import { datasets } from '../../datasets/dataset.ts';
import { formerYoungFolders, sealedFolder, youngFolder } from '../log/young-folder.ts';
import type { FolderStoreOptions } from '../../runtime/store/folder-store.ts';
import { findStoredSize, localFiles, openStore } from '../../runtime/store/open-store.ts';

export interface WrittenFile {
  readonly sizeBytes: number;
  readonly numRecords: number;
  readonly stats: FileStats;
  readonly sha256: string;
  /** Mark of its row groups' hashes, for the log. */
  readonly groups?: string;
}

/** Columns with minimum and maximum in the log, and their format there. */
const statColumns: Readonly<Record<string, (value: string) => unknown>> = {
  event_id: String,
  kind: String,
  date: String,
  id_app: Number,
  event_time: toIsoTime,
  received_at: toIsoTime,
  available_at: toIsoTime,
  custom_event_name: String,
};

/** Columns with a minimum and maximum for this service only: files of versions before 0.4 lack them, which confuses delta-rs. */
const ownStatColumns: readonly string[] = ['custom_event_name'];

/** Limit of a text in the statistics, UTF-8 bytes. The engine truncates at 256. */
const maxStatBytes = 200;

/** Reports whether a minimum or maximum is exact. */
const isExact = (value: string): boolean => Buffer.byteLength(value) <= maxStatBytes;

/** Returns the property that names the columns with statistics. Without it, delta-rs reads other columns as NULL. */
export function statsProperty(columns: readonly { readonly name: string }[]): Readonly<Record<string, string>> {
  const named = columns
    .map(({ name }) => name)
    .filter((name) => Object.hasOwn(statColumns, name) && !ownStatColumns.includes(name));
  return { 'delta.dataSkippingStatsColumns': named.join(',') };
}

/** Converts DuckDB's `2023-11-14 22:13:20.123+00` to ISO 8601 with milliseconds. */
function toIsoTime(value: string): string {
  return new Date(`${value.replace(' ', 'T').replace(/\+00$/, '')}Z`).toISOString();
}

/** Reads a MAP of the engine. */
function toMap(map: unknown): Map<string, unknown> {
  const entries: readonly unknown[] = Array.isArray(map) ? map : [];
  return new Map(entries.map(membersOf).map(({ key, value }) => [String(key), value]));
}

function toStats(numRecords: number, statistics: unknown): FileStats {
  const minValues: Record<string, unknown> = {};
  const maxValues: Record<string, unknown> = {};
  const nullCount: Record<string, number> = {};
  for (const [key, value] of toMap(statistics)) {
    const column = key.slice(1, -1);
    const convert = statColumns[column];
    if (convert === undefined) continue;
    const known = toMap(value);
    const min = known.get('min');
    const max = known.get('max');
    if (isText(min) && isText(max) && isExact(min) && isExact(max)) {
      minValues[column] = convert(min);
      maxValues[column] = convert(max);
    }
    const nulls = known.get('null_count');
    if (nulls !== undefined && !ownStatColumns.includes(column)) nullCount[column] = Number(nulls);
  }
  return { numRecords, minValues, maxValues, nullCount };
}

/** Zstandard levels. Level 3 is 3 % smaller than 1; level 9 another 10 % in twice the time (a million events). */
const levels = { young: 1, sealed: 3 } as const;

/** Limit of distinct values for a dictionary in a young file. DuckDB's default costs 4 % more bytes and more time. */
const maxDictionary = 4096;
const youngSql = `COMPRESSION_LEVEL ${levels.young}, DICTIONARY_SIZE_LIMIT ${maxDictionary}`;
const levelSql = { young: youngSql, sealed: `COMPRESSION_LEVEL ${levels.sealed}` } as const;

/** Limits of row groups, which the engine holds uncompressed until written. `bytes` needs `boundRowGroups`. */
export interface RowGroup {
  readonly rows?: number;
  readonly bytes?: number;
  /** Whether the file gets hashes of its row groups, of rows in the order of apps. */
  readonly hashed?: boolean;
  /** Bytes of a text column's dictionary, which the engine holds while it writes. */
  readonly dictionaryBytes?: number;
}

/** Renders options of a COPY, with a leading comma unless empty. */
export function rowGroupSql(duckdb: Duckdb, { rows, bytes, dictionaryBytes }: RowGroup): string {
  const dictionary = dictionaryBytes === undefined ? '' : `, STRING_DICTIONARY_PAGE_SIZE_LIMIT ${dictionaryBytes}`;
  return `${dictionary}${rows === undefined ? '' : `, ROW_GROUP_SIZE ${rows}`}${bytes === undefined || duckdb.boundRowGroups !== true ? '' : `, ROW_GROUP_SIZE_BYTES ${bytes}`}`;
}

/** Fsyncs a file that a COPY has written. `row`: its result. */
async function finishFile(row: SqlRow, file: string): Promise<WrittenFile> {
  await syncFile(file);
  const numRecords = Number(row['count']);
  return {
    sizeBytes: await getSize(file),
    numRecords,
    stats: toStats(numRecords, row['column_statistics']),
    sha256: await hashFile(file),
  };
}

/** Writes a query's rows to a Parquet file and fsyncs it. The caller syncs the folder. An error leaves no file. */
export async function writeDataFile(
  duckdb: Duckdb,
  query: string,
  file: string,
  keep: keyof typeof levels = 'sealed',
  rowGroup: RowGroup = {},
): Promise<WrittenFile> {
  try {
    const [row] = await duckdb.rows(
      `COPY (${query}) TO ${sqlText(file)} (FORMAT parquet, COMPRESSION zstd, ${levelSql[keep]}, RETURN_STATS true${rowGroupSql(duckdb, rowGroup)})`,
    );
    if (row === undefined) throw new AppError('sql', `duckdb: COPY to ${file} returned no statistics`);
    const groups = rowGroup.hashed === true ? await addRowGroupHashes(duckdb, file) : undefined;
    return { ...(await finishFile(row, file)), ...(groups === undefined ? {} : { groups }) };
  } catch (error) {
    await removeFile(file);
    throw error;
  }
}

/** Limit of files that are fsynced and hashed concurrently. */
const finishedAtOnce = 2;

export interface WrittenPart extends WrittenFile {
  readonly file: string;
}

/** Writes a query's rows, unordered, to synced young files in an empty folder. An error may leave files. */
export async function writeDataFiles(
  duckdb: Duckdb,
  query: string,
  folder: string,
  rowGroupsPerFile: number,
): Promise<WrittenPart[]> {
  const rows = await duckdb.rows(
    `COPY (${query}) TO ${sqlText(folder)} (FORMAT parquet, COMPRESSION zstd, ${youngSql}, RETURN_STATS true, ROW_GROUPS_PER_FILE ${rowGroupsPerFile})`,
  );
  const isFilled = (row: (typeof rows)[number]): boolean => Number(row['count']) > 0;
  for (const row of rows) if (!isFilled(row)) await removeFile(String(row['filename']));
  const written: WrittenPart[] = [];
  await inParallel(rows.filter(isFilled).entries(), finishedAtOnce, async ([index, row]) => {
    const file = String(row['filename']);
    written[index] = { file, ...(await finishFile(row, file)) };
  });
  await syncFolder(folder);
  return written;
}

/** Returns the add of a file. `keyless`: none of its events was stored under an Idempotency-Key. */
export function toAdd(
  relativePath: string,
  written: WrittenFile,
  nowMs: number,
  dataChange: boolean,
  keyless = false,
): AddAction {
  return {
    path: encodeURI(relativePath.split(path.sep).join('/')),
    partitionValues: {},
    size: written.sizeBytes,
    modificationTime: nowMs,
    dataChange,
    stats: JSON.stringify(written.stats),
    tags: {
      sha256: written.sha256,
      ...(keyless ? { keyed: '0' } : {}),
      ...(written.groups === undefined ? {} : { groups: written.groups }),
    },
  };
}

/** Opens the objects of a lake, by keys relative to its folder. */
export function lakeStore(lakeDir: string, options: FolderStoreOptions = {}): ObjectStore {
  return openStore(path.resolve(lakeDir), { isGrowing: true, ...options });
}

/** Lists the Parquet files in a table's folder that may have events, whether the log names them or not. */
export async function listDataFiles(tableDir: string): Promise<string[]> {
  const log = `${path.basename(logFolder(tableDir))}/`;
  const names = await tableStore(tableDir).list('');
  return names.filter((name) => name.endsWith('.parquet') && !name.startsWith(log) && name !== emptyFileName);
}

const hint = "Restore the file from a backup; 'tributary lake check' lists all damaged files.";

type CheckedFile = Pick<DataFile, 'absolutePath' | 'sizeBytes' | 'sha256' | 'groups'>;

async function isIntact(
  { absolutePath, sizeBytes, sha256, groups }: CheckedFile,
  rowsRead?: RowsRead,
): Promise<boolean> {
  try {
    return await localFiles.use(
      [{ absolutePath, sizeBytes, sha256 }],
      async ([local = '']) =>
        (await getSize(local)) === sizeBytes && (await isLocalIntact(local, { sha256, groups }, rowsRead)),
    );
  } catch (error) {
    // It is missing, or damaged where only verified copies are provided.
    if (!isSystemError(error, 'ENOENT', 'ENOTDIR') && !isAppError(error, 'file_damaged')) throw error;
    return false;
  }
}

/**
 * Finds damage by reading the entire file, or its verified copy, since Parquet readers verify no checksums. With
 * `rowsRead`, it may read only their row groups. A missing file is retryable.
 */
export async function findFileDamage(file: CheckedFile, rowsRead?: RowsRead): Promise<AppError | undefined> {
  const { absolutePath, sizeBytes, sha256 } = file;
  if (sha256 !== undefined && (await isIntact(file, rowsRead))) return undefined;
  const size = await findStoredSize({ absolutePath });
  if (size === undefined) return new AppError('file_damaged', `${absolutePath} is missing`, { retryable: true, hint });
  if (size !== sizeBytes)
    return new AppError('file_damaged', `${absolutePath} is damaged: it has ${size} bytes instead of ${sizeBytes}`, {
      hint,
    });
  if (sha256 === undefined) return undefined;
  return new AppError('file_damaged', `${absolutePath} is damaged: checksum mismatch`, {
    hint,
  });
}

/** Throws the first damage of files, as `findFileDamage`. Those of other engines are checked by size only. */
export async function assertFilesIntact(files: readonly DataFile[], rowsRead?: RowsRead): Promise<void> {
  for (const file of files) {
    const damage = await findFileDamage(file, rowsRead);
    if (damage !== undefined) throw damage;
  }
}

/** Returns the names in a folder that cannot be read: none. Throws errors of another store. */
function orNone(error: unknown): readonly string[] {
  if (isAppError(error)) throw error;
  return [];
}

/** Reports whether a lake ever had rows, by its names only, so that a damaged log has no effect. */
export async function holdsEvents(lakeDir: string): Promise<boolean> {
  const store = lakeStore(lakeDir);
  const folders = (prefix: string) => store.folders(prefix).catch(orNone);
  const holds = async (prefix: string): Promise<boolean> =>
    (await folders(prefix)).length > 0 || (await store.list(prefix).catch(orNone)).length > 0;
  for (const name of ['failed', 'quarantine', 'orphans']) if (await holds(`${name}/`)) return true;
  for (const { table, partitionBy } of datasets.values()) {
    const hive = `${partitionBy[0]?.name ?? ''}=`;
    if ((await folders(`${table}/`)).some((name) => name.startsWith(hive))) return true;
    for (const name of [youngFolder, sealedFolder, ...formerYoungFolders])
      if (await holds(`${table}/${name}/`)) return true;
  }
  return false;
}
