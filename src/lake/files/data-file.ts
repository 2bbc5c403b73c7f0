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
import path from 'node:path';
import { readdir } from 'node:fs/promises';
import { readdirSync } from 'node:fs';
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

/** What is known of a Parquet file once it is written. */
export interface WrittenFile {
  readonly sizeBytes: number;
  readonly numRecords: number;
  readonly stats: FileStats;
  /** Hash of its bytes, hex. */
  readonly sha256: string;
}

/** The columns whose minimum and maximum readers prune by, and how each value stands in the log. */
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
 * The table property that names the columns with statistics. delta-rs takes a column without statistics for NULL in
 * every file, and finds none of its rows, unless the property leaves the column out.
 */
export function statsProperty(columns: readonly { readonly name: string }[]): Readonly<Record<string, string>> {
  const named = columns.map(({ name }) => name).filter((name) => Object.hasOwn(statColumns, name));
  return { 'delta.dataSkippingStatsColumns': named.join(',') };
}

/**
 * DuckDB writes `2023-11-14 22:13:20.123+00` (TimeZone is UTC); the log wants ISO 8601 with milliseconds, which is all
 * our times have.
 */
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
 * Zstandard's level for files that are soon rewritten, and for files that stay. Measured on a million events: level 3
 * is 3 % smaller than 1, level 9 another 10 % for twice the time; snappy is 70 % larger. Row groups of 122,880 rows
 * (DuckDB's own) read fastest; Bloom filters, which need large dictionaries, made files a quarter larger and no lookup
 * faster.
 */
const levels = { young: 1, sealed: 3 } as const;

/**
 * Different values of a column in a row group of a young file, beyond which they are written without a dictionary. Made
 * for a column of identities, a dictionary is given up when it is full: DuckDB's own bound is a fifth of the rows, which
 * is 4 % more bytes of imported events, and more time.
 */
const maxDictionary = 4096;
const youngSql = `COMPRESSION_LEVEL ${levels.young}, DICTIONARY_SIZE_LIMIT ${maxDictionary}`;
const levelSql = { young: youngSql, sealed: `COMPRESSION_LEVEL ${levels.sealed}` } as const;

/**
 * Bounds of the row groups: the engine holds each in memory, uncompressed, until it is written. `bytes` holds
 * for an engine that was opened with `boundRowGroups`; others refuse it.
 */
export interface RowGroup {
  readonly rows?: number;
  readonly bytes?: number;
  /** Bytes of the dictionary of a column of text: the engine holds one for each column while it writes. */
  readonly dictionaryBytes?: number;
}

/** The options of a COPY for these bounds, from a comma on; empty where there are none. */
export function rowGroupSql(duckdb: Duckdb, { rows, bytes, dictionaryBytes }: RowGroup): string {
  const dictionary = dictionaryBytes === undefined ? '' : `, STRING_DICTIONARY_PAGE_SIZE_LIMIT ${dictionaryBytes}`;
  return `${dictionary}${rows === undefined ? '' : `, ROW_GROUP_SIZE ${rows}`}${bytes === undefined || duckdb.boundRowGroups !== true ? '' : `, ROW_GROUP_SIZE_BYTES ${bytes}`}`;
}

/**
 * Runs a query into one Parquet file and fsyncs it; the caller makes its name durable (syncFolder). On an error nothing
 * is left behind. The file must not be where readers look until it is complete.
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

/** So many of several files are made durable and hashed at a time: the disk works on one, the processor on another. */
const finishedAtOnce = 2;

/** A file of several that one query was written to. */
export interface WrittenPart extends WrittenFile {
  /** Its path. */
  readonly file: string;
}

/**
 * Runs a query into young Parquet files of so many row groups each, in a folder that is there and empty, and fsyncs
 * them and the folder. No order is kept. Of a query without rows there is no file. What an error leaves is the caller's
 * to remove.
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
 * The action that adds a written file to the table, at a path relative to the table's folder. `keyless`: surely none of
 * its events was stored under an Idempotency-Key.
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

/**
 * Lists every Parquet file in a table's folder that may hold events, relative to it, whether the log names it or not:
 * young, sealed, rewritten, and those of other engines. Not the checkpoints, nor the empty file.
 */
export async function listDataFiles(tableDir: string): Promise<string[]> {
  const log = `${path.basename(logFolder(tableDir))}${path.sep}`;
  const names = await readdir(tableDir, { recursive: true });
  return names.filter((name) => name.endsWith('.parquet') && !name.startsWith(log) && name !== emptyFileName);
}

const hint = "Restore the file from a copy; 'tributary lake check' lists every damaged one.";

/**
 * Says what is wrong with a data file: `file_damaged`, `retryable` when it is not there, which an erasure may have
 * caused. Reads it whole: Parquet readers check no sums, so a flipped bit in a page would come out as a value like any
 * other.
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
 * Throws the damage of the first file that has one, before anything is made of their rows. Files of another engine are
 * checked by size only.
 */
export async function assertFilesWhole(files: readonly DataFile[]): Promise<void> {
  for (const file of files) {
    const damage = await findFileDamage(file);
    if (damage !== undefined) throw damage;
  }
}

/** Lists a folder; nothing where there is none, or it cannot be read. */
function listNames(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Says whether rows were ever written to a table. */
function holdsRows(lakeDir: string, { table, partitionBy }: Dataset): boolean {
  const dir = path.join(lakeDir, table);
  const folders = [youngFolder, sealedFolder, ...formerYoungFolders].map((name) => path.join(dir, name));
  return (
    folders.some((folder) => listNames(folder).length > 0) ||
    listNames(dir).some((name) => name.startsWith(`${partitionBy[0]?.name ?? ''}=`))
  );
}

/**
 * Says whether events, or rows of another table, were ever written to a lake, by its folders alone: cheap, and true also
 * where its log is damaged.
 */
export function holdsEvents(lakeDir: string): boolean {
  return (
    ['failed', 'orphans'].some((folder) => listNames(path.join(lakeDir, folder)).length > 0) ||
    [...datasets.values()].some((dataset) => holdsRows(lakeDir, dataset))
  );
}
