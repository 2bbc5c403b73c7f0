import { AppError, isAppError } from '../../runtime/errors.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { writeDataFiles, type WrittenPart } from '../../lake/files/data-file.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { readPlain } from '../../runtime/files/input-file.ts';
import { inPortions } from '../tables.ts';
import { findBadRows, exceedsBounds, noBadRows, type BadBounds, type BadRows } from './bad-rows.ts';
import { findLongRecord, walkRecords } from './csv-records.ts';
import { sqlText } from '../../lake/sql/literals.ts';
import { applyRule } from './field-rules.ts';
import type { FileField, RejectedFile } from './file-fields.ts';
import type { FileCell } from './row-columns.ts';
import { damagedParquet, maxLineBytes, tooLong } from './recognize.ts';
import { buildRowsSql, type LoadStamp, type RowsSql } from './row-sql.ts';
import type { LoadSource } from './source.ts';

/**
 * Writes the rows of a file to Parquet files that no commit names yet, in the order of the file, which decides on the
 * duplicate that stays. The first, fastest query ends at the first bad row. Only then is each row checked: bad rows are
 * counted and located, and if they are within the limit the good rows are written.
 */

/** About a million rows per young file. */
export const rowGroupsPerFile = 8;

const appsTable = 'load_apps';

export interface RegisteredApp {
  readonly idApp: number;
  readonly sdkKey: string;
}

export async function loadApps(duckdb: Duckdb, apps: readonly RegisteredApp[]): Promise<void> {
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${appsTable} (id_app BIGINT, sdk_key VARCHAR)`);
  for (const some of inPortions(apps, 500)) {
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
  readonly bounds: BadBounds;
  readonly stamp: LoadStamp;
  readonly signal: AbortSignal;
  readonly makeRoom: () => Promise<string>;
}

export interface StagedRows {
  /** Empty if the bad rows exceed the limit. */
  readonly files: readonly WrittenPart[];
  readonly bad: BadRows;
}

/** Builds the SQL of a file's rows; `isFirst`: the fastest query, which fails at the first bad row. */
function buildSql(loadSource: LoadSource, { dataset, idApp, fields }: StageOptions, isFirst: boolean): RowsSql {
  const ofFile = fields.filter(({ constant }) => constant === undefined);
  const relation = loadSource.relation(ofFile, !isFirst);
  const constants = fields.flatMap((field): FileCell[] =>
    field.constant === undefined ? [] : [{ ...field, kind: 'text', sql: sqlText(field.constant) }],
  );
  const cells = [...relation.cells.map(applyRule), ...constants];
  return buildRowsSql({ ...relation, cells, dataset, idApp, appsTable, isStrict: isFirst });
}

async function writeRows(
  duckdb: Duckdb,
  sql: RowsSql,
  { stamp, makeRoom }: StageOptions,
  where: string,
): Promise<WrittenPart[]> {
  const query = `SELECT ${sql.toColumns(stamp)} FROM (${sql.checkedSql}) AS checked ${where}`;
  return writeDataFiles(duckdb, query, await makeRoom(), rowGroupsPerFile);
}

async function writeGoodRows(
  duckdb: Duckdb,
  loadSource: LoadSource,
  options: StageOptions,
): Promise<StagedRows | RejectedFile> {
  const { header } = loadSource;
  if (header !== undefined) {
    const records = walkRecords(readPlain(loadSource.file, loadSource.gzip), header.delimiter);
    const long = await findLongRecord(records, maxLineBytes);
    if (long !== undefined) return tooLong(long);
  }
  const sql = buildSql(loadSource, options, false);
  const bad = await findBadRows(duckdb, loadSource, sql, options.bounds);
  if (exceedsBounds(bad, options.bounds)) return { files: [], bad };
  return { files: await writeRows(duckdb, sql, options, 'WHERE fault IS NULL'), bad };
}

export function throwIfStopped(signal: AbortSignal, cause?: unknown): void {
  if (signal.aborted) throw new AppError('stopping', 'the load was stopped: nothing was loaded', { cause });
}

/** Writes the rows of a source to files, or returns the bad rows. Errors: `stopping`, `disk`, `memory`, `sql`. */
export async function stageRows(
  duckdb: Duckdb,
  loadSource: LoadSource,
  options: StageOptions,
): Promise<StagedRows | RejectedFile> {
  const { signal } = options;
  throwIfStopped(signal);
  const interrupt = (): void => duckdb.interrupt();
  signal.addEventListener('abort', interrupt);
  try {
    try {
      return { files: await writeRows(duckdb, buildSql(loadSource, options, true), options, ''), bad: noBadRows };
    } catch (error) {
      throwIfStopped(signal, error);
      if (!isAppError(error, 'sql')) throw error;
    }
    return await writeGoodRows(duckdb, loadSource, options);
  } catch (error) {
    throwIfStopped(signal, error);
    // A damaged page of Parquet is found only when it is read.
    if (loadSource.format === 'parquet' && isAppError(error, 'sql')) return damagedParquet;
    throw error;
  } finally {
    signal.removeEventListener('abort', interrupt);
  }
}

export interface LoadProgress {
  /** `hash`: comparing the content with earlier loads; `read`: reading and writing rows; `commit`: the rest. */
  readonly phase: 'hash' | 'read' | 'commit';
  /** Of the phase, 0 to 100; absent if unknown. */
  readonly percent?: number;
  readonly bytesPerSecond?: number;
  readonly secondsLeft?: number;
}

const everyMs = 1000;

export function watchProgress(
  onProgress: ((loadProgress: LoadProgress) => void) | undefined,
  sizeBytes: number,
  duckdb: Pick<Duckdb, 'progress'>,
): { phase(name: LoadProgress['phase']): void; stop(): void } {
  let phase: LoadProgress['phase'] = 'hash';
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
