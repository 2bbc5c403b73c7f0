import { AppError, isAppError } from '../../runtime/errors.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { writeDataFiles, type WrittenPart } from '../../lake/files/data-file.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { readPlain } from '../../runtime/files/input-file.ts';
import { findBadRows, isRefused, noBad, type BadBounds, type BadRows } from './bad-rows.ts';
import { findLongRecord, walkRecords } from './csv-records.ts';
import type { FileField, RefusedFile } from './file-fields.ts';
import { damagedParquet, maxLineBytes, tooLong } from './recognize.ts';
import { buildRowsSql, type LoadStamp, type RowsSql } from './row-sql.ts';
import type { Source } from './source.ts';

/**
 * The rows of a file become Parquet files that no commit names yet.
 *
 * The files have the rows in the order of their file, so that of several rows with one identity the first is known.
 * First in one go, the fastest way, which ends at the first bad row. Only then each row is looked at by itself: the bad
 * ones are counted and placed, and where so many may be bad the good ones are written.
 */

/** Young files have about a million rows: 8 of DuckDB's own row groups. */
export const rowGroupsPerFile = 8;

/** The table of the registered apps that rows are held against. */
const appsTable = 'load_apps';

export interface RegisteredApp {
  readonly idApp: number;
  readonly sdkKey: string;
}

/** Loads the registered apps into the engine. */
export async function loadApps(duckdb: Duckdb, apps: readonly RegisteredApp[]): Promise<void> {
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${appsTable} (id_app BIGINT, sdk_key VARCHAR)`);
  for (let from = 0; from < apps.length; from += 500) {
    const some = apps.slice(from, from + 500);
    const list = some.map((_, index) => `($${2 * index + 1}, $${2 * index + 2})`).join(', ');
    await duckdb.run(
      `INSERT INTO ${appsTable} VALUES ${list}`,
      some.flatMap(({ idApp, sdkKey }) => [idApp, sdkKey]),
    );
  }
}

export interface StageOptions {
  readonly dataset: Dataset;
  readonly fields: readonly FileField[];
  readonly idApp: number | undefined;
  /** Which rows may be bad. */
  readonly bounds: BadBounds;
  readonly stamp: LoadStamp;
  readonly signal: AbortSignal;
  /** Makes an empty folder for the files. */
  readonly makeRoom: () => Promise<string>;
}

export interface StagedRows {
  /** None where more rows are bad than may be. */
  readonly files: readonly WrittenPart[];
  readonly bad: BadRows;
}

/** The SQL of a file's rows; `isFirst`: the fastest way, which ends in an error at the first bad row. */
function buildSql(source: Source, { dataset, idApp, fields }: StageOptions, isFirst: boolean): RowsSql {
  const { checks, ...relation } = source.relation(fields, !isFirst);
  return buildRowsSql({ ...relation, dataset, firstChecks: checks, idApp, appsTable, isStrict: isFirst });
}

/** Writes the rows of a source to files. */
async function writeRows(
  duckdb: Duckdb,
  sql: RowsSql,
  { stamp, makeRoom }: StageOptions,
  where: string,
): Promise<WrittenPart[]> {
  const query = `SELECT ${sql.toColumns(stamp)} FROM (${sql.checkedSql}) AS checked ${where}`;
  return writeDataFiles(duckdb, query, await makeRoom(), rowGroupsPerFile);
}

/** Counts and places the bad rows of a source; writes the others where so many may be bad. */
async function writeGoodRows(duckdb: Duckdb, source: Source, options: StageOptions): Promise<StagedRows | RefusedFile> {
  const { header } = source;
  if (header !== undefined) {
    const records = walkRecords(readPlain(source.file, source.gzip), header.delimiter);
    const long = await findLongRecord(records, maxLineBytes);
    if (long !== undefined) return tooLong(long);
  }
  const sql = buildSql(source, options, false);
  const bad = await findBadRows(duckdb, source, sql, options.bounds);
  if (isRefused(bad, options.bounds)) return { files: [], bad };
  return { files: await writeRows(duckdb, sql, options, 'WHERE fault IS NULL'), bad };
}

/** Throws when the load was asked to stop. */
export function assertGoesOn(signal: AbortSignal, cause?: unknown): void {
  if (signal.aborted) throw new AppError('stopping', 'the load was stopped: nothing of the file was loaded', { cause });
}

/**
 * Writes the rows of a source to files, or says which are bad. Ends when the load is asked to stop. Errors: `stopping`,
 * `disk`, `memory`, `sql`.
 */
export async function stageRows(
  duckdb: Duckdb,
  source: Source,
  options: StageOptions,
): Promise<StagedRows | RefusedFile> {
  const { signal } = options;
  assertGoesOn(signal);
  const interrupt = (): void => duckdb.interrupt();
  signal.addEventListener('abort', interrupt);
  try {
    try {
      return { files: await writeRows(duckdb, buildSql(source, options, true), options, ''), bad: noBad };
    } catch (error) {
      assertGoesOn(signal, error);
      if (!isAppError(error, 'sql')) throw error;
    }
    return await writeGoodRows(duckdb, source, options);
  } catch (error) {
    assertGoesOn(signal, error);
    // A damaged page of Parquet is found when it is read.
    if (source.format === 'parquet' && isAppError(error, 'sql')) return damagedParquet;
    throw error;
  } finally {
    signal.removeEventListener('abort', interrupt);
  }
}

/** How far a load is. */
export interface Progress {
  /** `hash`: its content is compared with what was loaded; `read`: its rows are read and written; `commit`: the rest. */
  readonly phase: 'hash' | 'read' | 'commit';
  /** Of the phase, 0 to 100; absent where it is not known. */
  readonly percent?: number;
  /** Bytes of the file a second, in this phase so far. */
  readonly bytesPerSecond?: number;
  /** Time that the phase will take at this rate, seconds. */
  readonly secondsLeft?: number;
}

const everyMs = 1000;

/** Reports the progress of a load until it is stopped. */
export function watchProgress(
  onProgress: ((progress: Progress) => void) | undefined,
  sizeBytes: number,
  duckdb: Pick<Duckdb, 'progress'>,
): { phase(name: Progress['phase']): void; stop(): void } {
  let phase: Progress['phase'] = 'hash';
  let sinceMs = performance.now();
  const report = (): void => {
    const percent = phase === 'read' ? duckdb.progress() : undefined;
    const seconds = (performance.now() - sinceMs) / 1000;
    if (percent === undefined || percent < 1) return onProgress?.({ phase });
    const bytesPerSecond = Math.round((sizeBytes * percent) / 100 / seconds);
    const secondsLeft = Math.round((seconds * (100 - percent)) / percent);
    onProgress?.({ phase, percent: Math.round(percent), bytesPerSecond, secondsLeft });
  };
  const timer = onProgress === undefined ? undefined : setInterval(report, everyMs);
  return {
    phase(name) {
      phase = name;
      sinceMs = performance.now();
    },
    stop: () => clearInterval(timer),
  };
}
