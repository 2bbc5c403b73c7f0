import { readdirSync } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { formatCount } from '../../src/demo/demo-report.ts';
import { parseConfig } from '../../src/config.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { createExportArea, type Credentials, type RunningArea } from '../helpers/export-area.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { listServiceProcesses } from '../helpers/processes.ts';
import { waitFor } from '../helpers/wait.ts';
import { openBenchLake, readLakeSize } from './bench-lake.ts';
import { median, reportBench, sumOf } from './bench-report.ts';
import { benchRows, formatMb, isFull, rounds } from './bench-size.ts';
import { runDuckdbCopy, type Cost } from './duckdb-copy.ts';
import { addDays, appCount, firstDay } from './export-lake.ts';
import { readPeakBytes } from './peak-memory.ts';
import { csvDigestSql, plainExportSql } from './plain-export.ts';
import { readProcessSeconds } from './process-cost.ts';

/*
 * Cost of an export, from the create call to "Success!", in the real worker process with default settings. A COPY by
 * DuckDB of plain SQL with the same cells over the same files runs alternately. Then the export of one day as the lake
 * grows. `TRIBUTARY_BENCH_FULL=1` creates 1,000 days of 100 million rows and exports half of them to measure the
 * worker's memory.
 */
const days = isFull ? [1, 10, 100, 1000] : [1, 10, 100];
const allDays = days.at(-1) ?? 0;
const rowsOfDay = Math.ceil(benchRows(3_000_000, 100_000_000) / allDays);
const halfOfDays = Math.ceil(allDays / 2);
const daySeconds = 86_400;
const longestMs = 7_200_000;
const selectors = [
  'eventId',
  'tsEvent',
  'dtEvent',
  'idApp',
  'idAppTitle',
  'eventName',
  'params.name',
  'params.value',
  'customUserId',
  'lvid',
  'ipv4',
  'idConnectionTypeTitle',
];

const folder = temporaryFolder();
const area = createExportArea(folder);
let user: Credentials;

function dateOf(day: number): string {
  return new Date((firstDay + day * daySeconds) * 1000).toISOString().slice(0, 10);
}

/**
 * Starts an export area with default settings that writes a single plain file or compressed parts, regardless of the
 * size.
 */
function startArea(singleFileMaxBytes: number): Promise<RunningArea> {
  const { exportMaxBytes, exportTimeoutMs, partMaxBytes, duckdbMemoryMb } = parseConfig({});
  return area.start({ exportMaxBytes, exportTimeoutMs, partMaxBytes, duckdbMemoryMb, singleFileMaxBytes });
}

interface ExportCost extends Cost {
  /** Processor time of the worker until shortly before its end. */
  readonly cpuSeconds: number;
  /** Seconds until the first of several parts was complete. */
  readonly firstPartSeconds?: number;
  readonly rows: number;
  readonly files: number;
  readonly bytes: number;
}

/** The exported days; by default the custom events of the first days. */
interface ExportedDays {
  readonly fromDay?: number;
  readonly beforeDay: number;
  readonly event?: string;
  /** Reads the folder of the files before they are removed. */
  readonly onFiles?: (folder: string) => Promise<void>;
}

/** Reports whether an attempt has begun a second part, so that the first one is complete. */
function hasSecondPart(id: string): boolean {
  try {
    const names = readdirSync(path.join(area.reportsDir, id), { recursive: true }).map(String);
    return names.some((name) => name.endsWith('.2.csv.gz'));
  } catch {
    // The folder of the attempt is being renamed.
    return false;
  }
}

/** Returns the processor seconds of a process; 0 once it has exited. */
function findProcessSeconds(pid: number): number {
  try {
    return readProcessSeconds(pid);
  } catch {
    return 0;
  }
}

/** Returns a digest of the cells of CSV files. */
async function readDigest(files: readonly string[]): Promise<unknown> {
  const duckdb = await openDuckdb({ memoryMb: 2048, threads: 2 });
  try {
    return (await duckdb.rows(csvDigestSql(files)))[0];
  } finally {
    duckdb.close();
  }
}

/** Exports some days and waits for the files; then removes the result. */
async function exportDays(
  running: RunningArea,
  { fromDay = 0, beforeDay, event = 'customEvents', onFiles }: ExportedDays,
): Promise<ExportCost> {
  let [worker, peakBytes, cpuSeconds, firstPartSeconds] = [0, 0, 0, 0];
  const startedAt = performance.now();
  const id = await running.create(
    user,
    `event=${event}&selectors=${selectors.join(',')}&dateFrom=${dateOf(fromDay)}&dateTo=${dateOf(beforeDay - 1)}&timezone=UTC`,
  );
  await waitFor(
    'the export ends',
    () => {
      if (worker === 0) worker = listServiceProcesses(process.pid).find(({ role }) => role === 'job')?.pid ?? 0;
      peakBytes = Math.max(peakBytes, readPeakBytes(worker));
      if (worker > 0 && peakBytes > 0) cpuSeconds = Math.max(cpuSeconds, findProcessSeconds(worker));
      if (firstPartSeconds === 0 && hasSecondPart(id)) firstPartSeconds = (performance.now() - startedAt) / 1000;
      return running.stage.facts()['exportsInProgress'] === 0;
    },
    longestMs,
  );
  const seconds = (performance.now() - startedAt) / 1000;
  const { status, errorMessage, files = [] } = await running.waitForEnd(user, id);
  expect(status, errorMessage).toBe('Success!');
  await onFiles?.(path.join(area.reportsDir, id, 'parts'));
  await rm(path.join(area.reportsDir, id), { recursive: true, force: true });
  return {
    seconds,
    peakBytes,
    cpuSeconds,
    ...(firstPartSeconds === 0 ? {} : { firstPartSeconds }),
    rows: sumOf(files.map((file) => file.rows)),
    files: files.length,
    bytes: sumOf(files.map((file) => file.bytes)),
  };
}

/** Exports the first days, or the whole lake, as one plain file or as compressed parts. */
async function exportAll(
  singleFileMaxBytes: number,
  exported: Partial<Pick<ExportedDays, 'beforeDay' | 'onFiles'>> = {},
): Promise<ExportCost> {
  const running = await startArea(singleFileMaxBytes);
  try {
    return await exportDays(running, { beforeDay: allDays, ...exported });
  } finally {
    await running.stop();
  }
}

function secondsOf(runs: readonly Cost[] = []): number {
  return median(runs.map((run) => run.seconds));
}

beforeAll(async () => {
  for (let idApp = 1; idApp <= appCount; idApp += 1)
    await area.addApp({ idApp, platform: 'web', idAccount: 1, title: `Game ${idApp}` });
  user = await area.addUser({});
});

describe('benchmark: export', () => {
  it(
    'An export of one day takes the same time while the lake grows around it',
    async () => {
      const table = await openBenchLake(folder);
      const figures: { days: number; lakeRows: number; lakeBytes: number; runs: ExportCost[] }[] = [];
      for (const [index, count] of days.entries()) {
        await addDays(table, days[index - 1] ?? 0, count, rowsOfDay);
        const lake = await readLakeSize(folder);
        const running = await startArea(parseConfig({}).singleFileMaxBytes);
        const runs: ExportCost[] = [];
        for (let round = 0; round < 5; round += 1) runs.push(await exportDays(running, { beforeDay: 1 }));
        await running.stop();
        for (const run of runs) expect(run.rows).toBe(rowsOfDay);
        figures.push({ days: count, lakeRows: lake.rows, lakeBytes: lake.bytes, runs });
      }
      const baseline = secondsOf(figures[0]?.runs);
      const rows = figures.map(({ days: count, lakeRows, lakeBytes, runs }) => {
        const seconds = secondsOf(runs);
        return [
          String(count),
          formatCount(lakeRows),
          formatMb(lakeBytes),
          seconds.toFixed(2),
          (seconds / baseline).toFixed(2),
        ];
      });
      reportBench(
        'export-day',
        ['days in the lake', 'rows', 'MB', `seconds for a day of ${formatCount(rowsOfDay)} rows`, 'of one day'],
        rows,
        { rowsOfDay, figures },
      );
    },
    longestMs,
  );

  it(
    'Derived events of the last day are measured next to its imported ones, with the whole lake before it',
    async () => {
      const running = await startArea(parseConfig({}).singleFileMaxBytes);
      const contestants = ['customEvents', 'userActivities', 'userSessions', 'newUsers', 'newDevices'].map((event) => ({
        event,
        runs: [] as ExportCost[],
      }));
      const lastDay = { fromDay: allDays - 1, beforeDay: allDays };
      for (let round = 0; round < rounds; round += 1)
        for (const { event, runs } of contestants) runs.push(await exportDays(running, { ...lastDay, event }));
      await running.stop();
      expect(contestants[0]?.runs[0]?.rows).toBe(rowsOfDay);
      const baseline = secondsOf(contestants[0]?.runs);
      const rows = contestants.map(({ event, runs }) => [
        event,
        formatCount(runs[0]?.rows ?? 0),
        secondsOf(runs).toFixed(2),
        (secondsOf(runs) / baseline).toFixed(2),
        formatMb(Math.max(...runs.map((run) => run.peakBytes))),
      ]);
      const title = `seconds for the last day, of ${formatCount(rowsOfDay * allDays)} rows`;
      reportBench('export-derived', ['event', 'rows', title, 'of its custom events', 'peak MB'], rows, contestants);
    },
    longestMs,
  );

  it.runIf(isFull)(
    'An export worker stays within its memory limit however many rows it exports',
    async () => {
      const cost = await exportAll(0, { beforeDay: halfOfDays });
      expect(cost.rows).toBe(rowsOfDay * halfOfDays);
      const row = [
        formatCount(cost.rows),
        cost.seconds.toFixed(0),
        formatCount(Math.round(cost.rows / cost.seconds)),
        formatMb(cost.peakBytes),
        formatMb(cost.bytes),
        String(cost.files),
      ];
      reportBench(
        'export-memory',
        ['rows', 'seconds', 'rows/s', 'peak MB of the worker', 'MB of .csv.gz', 'parts'],
        [row],
        cost,
      );
    },
    longestMs,
  );

  // DuckDB's gzip of that many rows would take longer than all other steps.
  it.skipIf(isFull)(
    'An export of the whole lake is measured next to plain SQL with the same cells, run by DuckDB',
    async () => {
      const csvFile = path.join(folder, 'copy.csv');
      const contestants: {
        readonly name: string;
        readonly run: () => Promise<ExportCost>;
        readonly runs: ExportCost[];
      }[] = [
        { name: "DuckDB's COPY of plain SQL, one .csv", run: () => copyAll(csvFile), runs: [] },
        { name: 'tributary, one .csv', run: () => exportAll(Number.MAX_SAFE_INTEGER), runs: [] },
        { name: "DuckDB's COPY of plain SQL, one .csv.gz", run: () => copyAll(`${csvFile}.gz`), runs: [] },
        { name: 'tributary, .csv.gz parts', run: () => exportAll(0), runs: [] },
      ];
      async function copyAll(file: string): Promise<ExportCost> {
        const cost = await runDuckdbCopy(plainExportSql((await readLakeSize(folder)).paths, allDays, file));
        const bytes = (await stat(file)).size;
        await rm(file);
        return { ...cost, files: 1, bytes };
      }
      // Both must have the same cells.
      await runDuckdbCopy(plainExportSql((await readLakeSize(folder)).paths, allDays, csvFile));
      const digest = await readDigest([csvFile]);
      await rm(csvFile);
      await exportAll(0, {
        async onFiles(parts) {
          expect(await readDigest(readdirSync(parts).map((name) => path.join(parts, name)))).toEqual(digest);
        },
      });
      for (let round = 0; round < rounds; round += 1) for (const { run, runs } of contestants) runs.push(await run());

      const csvBytes = contestants[0]?.runs[0]?.bytes ?? 0;
      expect(contestants[1]?.runs[0]?.bytes).toBe(csvBytes);
      const rows = contestants.map(({ name, runs }, index) => {
        for (const run of runs) expect(run.rows, name).toBe(rowsOfDay * allDays);
        const seconds = secondsOf(runs);
        const baseline = secondsOf(contestants[index - (index % 2)]?.runs);
        const peak = Math.max(...runs.map((run) => run.peakBytes));
        return [
          name,
          seconds.toFixed(2),
          formatMb(csvBytes, seconds),
          (seconds / baseline).toFixed(2),
          median(runs.map((run) => run.cpuSeconds)).toFixed(1),
          median(runs.map((run) => run.firstPartSeconds ?? run.seconds)).toFixed(1),
          formatMb(peak),
          formatMb(runs[0]?.bytes ?? 0),
          String(runs[0]?.files),
        ];
      });
      const head = [
        `${formatCount(rowsOfDay * allDays)} rows, ${selectors.length} columns`,
        'seconds',
        'MB/s of CSV',
        'time of COPY',
        'CPU s',
        's to the first file',
        'peak MB',
        'MB written',
        'files',
      ];
      reportBench('export', head, rows, {
        rows: rowsOfDay * allDays,
        csvBytes,
        contestants: contestants.map(({ name, runs }) => ({ name, runs })),
      });
    },
    longestMs,
  );
});
