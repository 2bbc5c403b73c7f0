/**
 * The files of a table: Parquet, failed events, and the rewrites of what is there.
 *
 * In: queries and actions of whoever holds the right to commit. Out: files with their statistics and hash, for the log.
 * Invariant: a file is complete and fsynced before a commit names it; it is compared with its hash (data-file.ts)
 * before anything is made of its rows; its bytes never change. Other files of the same rows come by a change
 * (change.ts), and readers of folders see them at their places (places.ts).
 * Crash: files that no commit names, swept at the next start of the compactor; changes, settled
 * under the maintenance lock; pending failed events, settled by the log (failed-events.ts).
 */
import { tableFileMode, tableFolderMode } from '../../runtime/files/group-access.ts';
import type { ObjectStore } from '../../runtime/store/object-store.ts';
import path from 'node:path';
import { inParallel } from '../../runtime/async/in-parallel.ts';
import { removeFile, syncFile, syncFolder } from '../../runtime/files/durable-file.ts';
import { AppError } from '../../runtime/errors.ts';
import type { AddAction, FileStats } from '../log/actions.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { hashFile, findSize } from '../../runtime/files/file-checks.ts';
import { emptyFileName, type DataFile } from '../log/snapshot.ts';
import { logFolder } from '../log/log-files.ts';
import { datasets, type Dataset } from '../../datasets/dataset.ts';
import { formerYoungFolders, sealedFolder, youngFolder } from '../log/young-folder.ts';
import { listReadableNames } from '../../runtime/files/folder-names.ts';
import { openStore } from '../../runtime/store/open-store.ts';

export interface WrittenFile {
  readonly sizeBytes: number;
  readonly numRecords: number;
  readonly stats: FileStats;
  /** SHA-256 of its bytes, hex. */
  readonly sha256: string;
}

/** Columns with minimum and maximum in the log, and how a value is rendered there. */
const statColumns: Readonly<Record<string, (value: string) => unknown>> = {
  event_id: String,
  kind: String,
  date: String,
  id_app: Number,
  event_time: toIsoTime,
  received_at: toIsoTime,
  available_at: toIsoTime,
};

/**
 * Returns the table property that names the columns with statistics. delta-rs takes any other column for NULL in every
 * file unless the property leaves it out.
 */
export function statsProperty(columns: readonly { readonly name: string }[]): Readonly<Record<string, string>> {
  const named = columns.map(({ name }) => name).filter((name) => Object.hasOwn(statColumns, name));
  return { 'delta.dataSkippingStatsColumns': named.join(',') };
}

/** Converts DuckDB's `2023-11-14 22:13:20.123+00` to ISO 8601 with milliseconds. */
function toIsoTime(value: string): string {
  return new Date(`${value.replace(' ', 'T').replace(/\+00$/, '')}Z`).toISOString();
}

interface ColumnStatistics {
  readonly key: string;
  readonly value: readonly { readonly key: string; readonly value: string }[];
}

function toStats(numRecords: number, statistics: readonly ColumnStatistics[]): FileStats {
  const minValues: Record<string, unknown> = {};
  const maxValues: Record<string, unknown> = {};
  const nullCount: Record<string, number> = {};
  for (const { key, value } of statistics) {
    const column = key.slice(1, -1);
    const convert = statColumns[column];
    if (convert === undefined) continue;
    const known = new Map(value.map((entry) => [entry.key, entry.value]));
    const min = known.get('min');
    const max = known.get('max');
    if (min !== undefined && max !== undefined) {
      minValues[column] = convert(min);
      maxValues[column] = convert(max);
    }
    const nulls = known.get('null_count');
    if (nulls !== undefined) nullCount[column] = Number(nulls);
  }
  return { numRecords, minValues, maxValues, nullCount };
}

/**
 * Zstandard levels of files that are soon rewritten, and of files that stay. Measured on a million events: level 3 is 3
 * % smaller than 1, level 9 another 10 % for twice the time; snappy is 70 % larger. Row groups of 122,880 rows
 * (DuckDB's default) read fastest; Bloom filters made files a quarter larger and no lookup faster.
 */
const levels = { young: 1, sealed: 3 } as const;

/**
 * Distinct values in a row group of a young file up to which a column gets a dictionary. DuckDB builds one for a column
 * of ids, and drops it when it is full: its default, a fifth of the rows, takes 4 % more bytes and more time.
 */
const maxDictionary = 4096;
const youngSql = `COMPRESSION_LEVEL ${levels.young}, DICTIONARY_SIZE_LIMIT ${maxDictionary}`;
const levelSql = { young: youngSql, sealed: `COMPRESSION_LEVEL ${levels.sealed}` } as const;

/**
 * Bounds of row groups, which the engine holds uncompressed in memory until written. `bytes` needs an engine with
 * `boundRowGroups`.
 */
export interface RowGroup {
  readonly rows?: number;
  readonly bytes?: number;
  /** Bytes of the dictionary of a text column: the engine holds one per column while it writes. */
  readonly dictionaryBytes?: number;
}

/** Renders the options of a COPY, starting with a comma; empty if there are none. */
export function rowGroupSql(duckdb: Duckdb, { rows, bytes, dictionaryBytes }: RowGroup): string {
  const dictionary = dictionaryBytes === undefined ? '' : `, STRING_DICTIONARY_PAGE_SIZE_LIMIT ${dictionaryBytes}`;
  return `${dictionary}${rows === undefined ? '' : `, ROW_GROUP_SIZE ${rows}`}${bytes === undefined || duckdb.boundRowGroups !== true ? '' : `, ROW_GROUP_SIZE_BYTES ${bytes}`}`;
}

/**
 * Runs a query into one Parquet file and fsyncs it; the caller makes its name durable (syncFolder). After an error
 * there is no file. Readers must not see the path until then.
 */
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
    await syncFile(file);
    const numRecords = Number(row['count']);
    return {
      sizeBytes: Number(row['file_size_bytes']),
      numRecords,
      stats: toStats(numRecords, row['column_statistics'] as ColumnStatistics[]),
      sha256: await hashFile(file),
    };
  } catch (error) {
    await removeFile(file);
    throw error;
  }
}

/** Files that are fsynced and hashed at a time: one uses the disk, the other the processor. */
const finishedAtOnce = 2;

/** One of several files of a query. */
export interface WrittenPart extends WrittenFile {
  readonly file: string;
}

/**
 * Runs a query into young Parquet files in an empty folder, `rowGroupsPerFile` row groups each, and fsyncs them and the
 * folder. Order is not kept. A query without rows has no file. The caller removes what an error leaves.
 */
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
    const numRecords = Number(row['count']);
    await syncFile(file);
    written[index] = {
      file,
      sizeBytes: Number(row['file_size_bytes']),
      numRecords,
      stats: toStats(numRecords, row['column_statistics'] as ColumnStatistics[]),
      sha256: await hashFile(file),
    };
  });
  await syncFolder(folder);
  return written;
}

/**
 * Returns the action that adds a written file, at a path relative to the table's folder. `keyless`: none of its events
 * was stored under an Idempotency-Key.
 */
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
    tags: { sha256: written.sha256, ...(keyless ? { keyed: '0' } : {}) },
  };
}

export function tableStore(tableDir: string): ObjectStore {
  return openStore(tableDir, { mode: tableFileMode, folderMode: tableFolderMode, isGrowing: true });
}

/**
 * Lists the Parquet files in a table's folder that may hold events, named by the log or not: young, sealed, rewritten,
 * and those of other engines.
 */
export async function listDataFiles(tableDir: string): Promise<string[]> {
  const log = `${path.basename(logFolder(tableDir))}/`;
  const names = await tableStore(tableDir).list('');
  return names.filter((name) => name.endsWith('.parquet') && !name.startsWith(log) && name !== emptyFileName);
}

const hint = "Restore the file from a copy; 'tributary lake check' lists every damaged one.";

/**
 * Finds what is wrong with a data file: `file_damaged`, `retryable` if it is missing, which an erasure may have caused.
 * Reads it entirely: Parquet readers verify no checksums, so a flipped bit would yield a plausible value.
 */
export async function findFileDamage({
  absolutePath,
  sizeBytes,
  sha256,
}: Pick<DataFile, 'absolutePath' | 'sizeBytes' | 'sha256'>): Promise<AppError | undefined> {
  const size = await findSize(absolutePath);
  if (size === undefined)
    return new AppError('file_damaged', `${absolutePath} is not there`, { retryable: true, hint });
  if (size !== sizeBytes)
    return new AppError('file_damaged', `${absolutePath} is damaged: it has ${size} bytes instead of ${sizeBytes}`, {
      hint,
    });
  if (sha256 === undefined || (await hashFile(absolutePath)) === sha256) return undefined;
  return new AppError('file_damaged', `${absolutePath} is damaged: its bytes are not those that were written`, {
    hint,
  });
}

/**
 * Throws the first damage among files whose rows are about to be used. Files of another engine are checked by size
 * only.
 */
export async function assertFilesWhole(files: readonly DataFile[]): Promise<void> {
  for (const file of files) {
    const damage = await findFileDamage(file);
    if (damage !== undefined) throw damage;
  }
}

function holdsRows(lakeDir: string, { table, partitionBy }: Dataset): boolean {
  const dir = path.join(lakeDir, table);
  const folders = [youngFolder, sealedFolder, ...formerYoungFolders].map((name) => path.join(dir, name));
  return (
    folders.some((folder) => listReadableNames(folder).length > 0) ||
    listReadableNames(dir).some((name) => name.startsWith(`${partitionBy[0]?.name ?? ''}=`))
  );
}

/** Reports whether rows were ever written to a lake, by its folders only: also correct if the log is damaged. */
export function holdsEvents(lakeDir: string): boolean {
  return (
    ['failed', 'quarantine', 'orphans'].some((folder) => listReadableNames(path.join(lakeDir, folder)).length > 0) ||
    [...datasets.values()].some((dataset) => holdsRows(lakeDir, dataset))
  );
}
