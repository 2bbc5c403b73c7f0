import path from 'node:path';
import { expect, onTestFinished } from 'vitest';
import { openDayMerge } from '../../src/compact/seal/merge-day.ts';
import { events } from '../../src/datasets/dataset.ts';
import { openLake, lakePaths } from '../../src/lake/lake.ts';
import { vacuum } from '../../src/lake/cleanup.ts';
import { applyDueReplacements } from '../../src/lake/files/deferred-replacement.ts';
import { showMergedFolders } from '../../src/lake/files/merged-folders.ts';
import { rewriteFiles } from '../../src/lake/files/rewrite.ts';
import { readSnapshot, type DataFile } from '../../src/lake/log/snapshot.ts';
import type { Table } from '../../src/lake/log/table.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { noCrashPoint, type CrashPoint } from '../../src/runtime/crash-point.ts';
import type { Clock } from '../../src/runtime/clock.ts';
import { testFolder } from './folder.ts';
import { query } from './lake.ts';
import { addMadeFile, sealedValues } from './sealed-file.ts';

export const retentionMs = 60_000;

/** The folder of the day, relative to the table's. */
export const dayFolder = 'kind=custom_event/date=2026-01-31';
export const appsOfDay = 200;

/** Adds the sealed file of an hour of the day: half of the rows are of app 7. */
export async function addHour(table: Table, clock: Clock, hour: number, rows: number, isOfEarlierVersion = false) {
  const time = `TIMESTAMPTZ '2026-01-31 00:00:00+00' + to_hours(${hour % 24}) + to_milliseconds(i * 3600000 // ${rows})`;
  const availableAtMs = Date.UTC(2026, 1, 1) + hour * 1000;
  await addMadeFile(table, clock, {
    path: `${isOfEarlierVersion ? '' : '_sealed/'}${dayFolder}/hour-${hour}.parquet`,
    rows,
    values: {
      ...sealedValues(rows, 50),
      event_id: `format('{:08x}-0000-7000-8000-{:012x}', ${hour}, i)`,
      id_app: `CASE WHEN i % 2 = 0 THEN 7 ELSE hash(i) % ${appsOfDay} END`,
      event_time: time,
      received_at: time,
      available_at: `TIMESTAMPTZ '${new Date(availableAtMs).toISOString()}'`,
    },
    availableAtMs,
    orderBy: 'id_app, event_time',
  });
}

/** Creates a lake with a day of sealed files, which readers of folders see. Half of them are of an earlier version. */
export async function openSealedDay(clock: Clock, { hours = 12, rows = 1000 } = {}) {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const table = await openLake(lakeDir, { clock, crashPoint: noCrashPoint, retentionMs });
  for (let hour = 0; hour < hours; hour += 1) await addHour(table, clock, hour, rows, hour % 2 === 0);
  const { staging: stagingDir } = lakePaths(lakeDir);
  await applyDueReplacements(table, { nowMs: clock.nowMs(), retentionMs, stagingDir, crashPoint: noCrashPoint });
  return { folder, lakeDir, table, stagingDir };
}

/** Opens such a day with functions that merge it, show what is merged, and remove what no reader needs. */
export async function openMergeableDay(hours: number, rows = 1000) {
  const clock = { now: Date.now(), nowMs: () => clock.now };
  const day = await openSealedDay(clock, { hours, rows });
  const { table, stagingDir, lakeDir } = day;
  const duckdb = await openDuckdb({
    memoryMb: 256,
    threads: 1,
    tempDir: path.join(day.folder, 'spill'),
    boundRowGroups: true,
  });
  onTestFinished(() => duckdb.close());
  const bytes = table.snapshot().files.reduce((sum, file) => sum + file.sizeBytes, 0);

  /** Begins a merge of the day's files into about five. */
  const open = (crashPoint: CrashPoint = noCrashPoint) => {
    const work = { dataset: events, table, duckdb, clock, crashPoint, stagingDir, fileBytes: bytes / 5 };
    return openDayMerge(work, dayFolder, table.snapshot().files);
  };

  async function merge(crashPoint?: CrashPoint) {
    const merging = await open(crashPoint);
    try {
      for (let isWriting = true; isWriting;) isWriting = await merging.step();
      return await merging.commit();
    } finally {
      await merging.close();
    }
  }

  const replacing = (crashPoint: CrashPoint) => ({ nowMs: clock.now, retentionMs, stagingDir, crashPoint });
  const show = (crashPoint: CrashPoint = noCrashPoint) => showMergedFolders(table, replacing(crashPoint));
  const renew = () => applyDueReplacements(table, replacing(noCrashPoint));
  const clean = () => vacuum(table, { nowMs: clock.now, retentionMs, crashPoint: noCrashPoint });
  const work = { table, stagingDir, duckdb, clock, crashPoint: noCrashPoint };
  /** Rewrites files without some rows, as an erasure does. */
  const rewrite = (files: readonly DataFile[], where: string, rowsLeftOut: number) =>
    rewriteFiles(
      work,
      files.map((file) => ({ file, rowsLeftOut, toQuery: (source: string) => `FROM ${source} WHERE ${where}` })),
      { cause: 'enrich', totals: { stored: -rowsLeftOut, erased: rowsLeftOut } },
    );
  return { ...day, lakeDir, clock, open, merge, show, renew, clean, rewrite };
}

export interface DayRows {
  readonly rows: number;
  readonly ids: number;
  readonly digest: string;
}

async function readDay(files: string): Promise<DayRows> {
  const columns = events.columns.map(({ name }) => name).join(', ');
  const [row] = await query(
    `SELECT count(*)::INT AS rows, count(DISTINCT event_id)::INT AS ids, bit_xor(hash(${columns}))::VARCHAR AS digest FROM read_parquet(${files}, hive_partitioning = false)`,
  );
  return { rows: Number(row?.['rows']), ids: Number(row?.['ids']), digest: String(row?.['digest']) };
}

export const readGlob = (lakeDir: string): Promise<DayRows> =>
  readDay(`'${path.join(lakeDir, 'events', 'kind=*', 'date=*', '*.parquet')}'`);

export async function readLog(lakeDir: string): Promise<DayRows> {
  const { files } = await readSnapshot(lakePaths(lakeDir).table);
  return readDay(sqlList(files.map((file) => file.absolutePath)));
}

/** Asserts that files are sorted by app and time, and that an app is in several files only if it fills them. */
export async function expectSortedByApp(files: readonly DataFile[]): Promise<void> {
  const list = sqlList(files.map((file) => file.absolutePath));
  const [order] = await query(
    `SELECT count(*) FILTER (WHERE (id_app, event_time) < previous)::INT AS wrong FROM
     (SELECT (id_app, event_time) AS row, lag((id_app, event_time)) OVER (PARTITION BY filename ORDER BY file_row_number) AS previous, id_app, event_time
      FROM read_parquet(${list}, hive_partitioning = false, filename = true, file_row_number = true))`,
  );
  expect(order).toEqual({ wrong: 0 });
  const split = await query(
    `SELECT id_app::INT AS id_app FROM read_parquet(${list}, hive_partitioning = false, filename = true) GROUP BY ALL HAVING count(DISTINCT filename) > 1`,
  );
  for (const { id_app: idApp } of split) {
    const own = files.filter(
      ({ minValues, maxValues }) =>
        Number(minValues['id_app']) <= Number(idApp) && Number(maxValues['id_app']) >= Number(idApp),
    );
    const isAlone = own.every(({ minValues, maxValues }) => minValues['id_app'] === maxValues['id_app']);
    expect([idApp, isAlone]).toEqual([idApp, true]);
  }
}
