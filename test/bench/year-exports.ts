import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished } from 'vitest';
import type { ExportSpec } from '../../src/export/jobs/export-spec.ts';
import { fileFilter } from '../../src/export/worker/query.ts';
import { runExport } from '../../src/export/worker/run-export.ts';
import { pruneFiles } from '../../src/lake/files/prune.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot, type DataFile } from '../../src/lake/log/snapshot.ts';
import type { Duckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { planHere } from '../helpers/export-here.ts';
import { sumOf } from './bench-report.ts';
import { dateOfYear, dayMs, type Year } from './year-law.ts';

/** What the export of a day has cost. */
export interface ExportRun {
  readonly rows: number;
  /** Number of data files whose rows it has read. */
  readonly filesRead: number;
  /** The files of the result. */
  readonly paths: readonly string[];
  /** The data files that it has opened. */
  readonly opened: readonly DataFile[];
  /** Bytes that this process has read meanwhile; 0 without /proc. */
  readonly bytesRead: number;
  readonly ms: number;
  readonly cpuMs: number;
}

/** The export of a day of some apps from the lake in `folder`. */
export interface DayExport {
  readonly folder: string;
  readonly year: Year;
  readonly day: number;
  readonly event: 'customEvents' | 'newUsers' | 'newDevices';
  readonly idApps: readonly number[];
}

const selectors = {
  customEvents: ['eventId', 'tsEvent', 'idApp', 'eventName', 'customUserId', 'lvid'],
  newUsers: ['idApp', 'customUserId', 'tsEvent'],
  newDevices: ['idApp', 'lvid', 'tsEvent'],
} as const;

/** Limits of an export by the default settings, on two cores. */
const limits = { maxRows: 100_000_000, singleFileMaxBytes: 1024 ** 3, memoryMb: 2048, threads: 2 };

/** Returns the bytes that this process has read with system calls, also from the page cache; 0 without /proc. */
function readBytesRead(): number {
  try {
    return Number(/^rchar: (\d+)$/m.exec(readFileSync('/proc/self/io', 'utf8'))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

const tableOf = (folder: string): string => lakePaths(path.join(folder, 'lake')).table;

/** Returns the live files of a day, of all kinds. */
export async function listDay({ folder, year, day }: Pick<DayExport, 'folder' | 'year' | 'day'>): Promise<DataFile[]> {
  const { files } = await readSnapshot(tableOf(folder));
  return files.filter(({ publishedPath }) => publishedPath?.includes(`/date=${dateOfYear(year, day)}/`) === true);
}

/** Creates the folder of an attempt on the disk of the lake, whose files are then linked, not copied. */
function attemptFolder(folder: string): string {
  const created = mkdtempSync(path.join(folder, 'attempt-'));
  onTestFinished(() => rmSync(created, { recursive: true, force: true }));
  return created;
}

/** Runs an export as a worker does, in this process. */
export async function exportDay({ folder, year, day, event, idApps }: DayExport): Promise<ExportRun> {
  const fromSeconds = (year.firstDayMs + day * dayMs) / 1000;
  const request: Partial<ExportSpec> = {
    event,
    selectors: selectors[event],
    eventTime: { fromSeconds, beforeSeconds: fromSeconds + dayMs / 1000 },
  };
  const plan = { ...planHere(tableOf(folder), request, { idApps, limits }), folder: attemptFolder(folder) };
  const { files } = await readSnapshot(plan.tableDir);
  const opened = pruneFiles(files, fileFilter(plan.request, plan.apps));
  const [readBefore, cpuBefore, startedAt] = [readBytesRead(), process.cpuUsage(), performance.now()];
  const outcome = await runExport(plan, () => undefined);
  const ms = performance.now() - startedAt;
  const { user, system } = process.cpuUsage(cpuBefore);
  const bytesRead = readBytesRead() - readBefore;
  if (outcome.kind !== 'done') throw new Error(`the export of ${event} failed: ${outcome.error}`);
  // First-seen parts replace data files.
  if (event === 'customEvents') expect(outcome.filesRead).toBe(opened.length);
  return {
    rows: sumOf(outcome.files.map((file) => file.rows)),
    filesRead: outcome.filesRead,
    paths: outcome.files.map(({ name }) => path.join(plan.folder, name)),
    opened,
    bytesRead,
    ms,
    cpuMs: (user + system) / 1000,
  };
}

/** Returns the bytes of files that an export of an app verifies: the row groups of the app, and what follows the last one. */
export async function readVerifiedBytes(duckdb: Duckdb, files: readonly DataFile[], idApp: number): Promise<number> {
  const tails = files.map(({ sizeBytes, groups }) => sizeBytes - Number(groups?.split(',')[0] ?? 0));
  return sumOf(tails) + (await readGroupBytes(duckdb, files, idApp));
}

/** Returns the bytes of the row groups of files that may have rows of an app, by their statistics. */
async function readGroupBytes(duckdb: Duckdb, files: readonly DataFile[], idApp: number): Promise<number> {
  if (files.length === 0) return 0;
  const [row] = await duckdb.rows(
    `WITH chunks AS (FROM parquet_metadata(${sqlList(files.map((file) => file.absolutePath))})),
     groups AS (SELECT file_name, row_group_id FROM chunks
       WHERE path_in_schema = 'id_app' AND ${idApp} BETWEEN stats_min_value::BIGINT AND stats_max_value::BIGINT)
     SELECT coalesce(sum(total_compressed_size), 0)::BIGINT AS bytes FROM chunks SEMI JOIN groups USING (file_name, row_group_id)`,
  );
  return Number(row?.['bytes']);
}

/** Counts the rows of files that are not in the order of app and time. */
export async function countUnsorted(duckdb: Duckdb, files: readonly DataFile[]): Promise<number> {
  const [row] = await duckdb.rows(
    `SELECT count(*) FILTER ((id_app, event_time) < previous) AS wrong FROM
     (SELECT id_app, event_time, lag((id_app, event_time)) OVER (PARTITION BY filename ORDER BY file_row_number) AS previous
      FROM read_parquet(${sqlList(files.map((file) => file.absolutePath))}, hive_partitioning = false, filename = true, file_row_number = true))`,
  );
  return Number(row?.['wrong']);
}

/** Limits the rows whose first times the oracle has in memory. */
const rowsAtOnce = 50_000_000;

/** Cuts all apps of a year into ranges of about so many rows. */
function cutApps({ events, apps }: Year): (readonly [number, number])[] {
  const ranges: (readonly [number, number])[] = [];
  let [first, rows] = [1, 0];
  const sum = sumOf(Array.from({ length: apps }, (_, index) => 1 / (index + 1)));
  for (let idApp = 1; idApp <= apps; idApp += 1) {
    rows += events / sum / idApp;
    if (rows < rowsAtOnce && idApp < apps) continue;
    ranges.push([first, idApp]);
    [first, rows] = [idApp + 1, 0];
  }
  return ranges;
}

/**
 * Counts the new users or devices of a day by plain SQL over all rows of the lake, and compares them with the rows of
 * an export. It uses no code of the product.
 */
export async function compareWithOracle(
  duckdb: Duckdb,
  { folder, year, day, event }: DayExport,
  paths: readonly string[],
): Promise<{ readonly rows: number; readonly missing: number; readonly wrong: number }> {
  const { files } = await readSnapshot(tableOf(folder));
  const source = `read_parquet(${sqlList(files.map((file) => file.absolutePath))}, hive_partitioning = false)`;
  const [column, selector] = event === 'newUsers' ? ['custom_user_id', 'customUserId'] : ['lvid', 'lvid'];
  await duckdb.run('CREATE OR REPLACE TEMP TABLE expected (id_app BIGINT, subject VARCHAR, seconds BIGINT)');
  const fromSeconds = (year.firstDayMs + day * dayMs) / 1000;
  for (const [first, last] of cutApps(year))
    await duckdb.run(
      `INSERT INTO expected SELECT id_app, ${column}, epoch(min(event_time))::BIGINT AS seconds FROM ${source}
       WHERE id_app BETWEEN ${first} AND ${last} AND ${column} <> '' GROUP BY ALL
       HAVING seconds >= ${fromSeconds} AND seconds < ${fromSeconds + dayMs / 1000}`,
    );
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE exported AS SELECT "idApp"::BIGINT AS id_app, "${selector}" AS subject, "tsEvent"::BIGINT AS seconds
     FROM read_csv(${sqlList(paths)}, header = true, all_varchar = true)`,
  );
  const [counts] = await duckdb.rows(
    `SELECT (SELECT count(*) FROM expected) AS rows, (SELECT count(*) FROM (FROM expected EXCEPT ALL FROM exported)) AS missing,
       (SELECT count(*) FROM (FROM exported EXCEPT ALL FROM expected)) AS wrong`,
  );
  return { rows: Number(counts?.['rows']), missing: Number(counts?.['missing']), wrong: Number(counts?.['wrong']) };
}
