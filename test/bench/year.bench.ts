import { existsSync, mkdirSync, mkdtempSync, rmSync, statfsSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { formatCount } from '../../src/demo/demo-report.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot, type DataFile } from '../../src/lake/log/snapshot.ts';
import { openDuckdb, type Duckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { readLakeSize } from './bench-lake.ts';
import { formatSpread, median, reportBench, sumOf } from './bench-report.ts';
import { formatMb, inQuick } from './bench-size.ts';
import {
  compareWithOracle,
  countUnsorted,
  exportDay,
  listDay,
  readVerifiedBytes,
  type ExportRun,
} from './year-exports.ts';
import { targetBytes, writeYear } from './year-lake.ts';
import { dayMs, daysOfYear, planDay, yearKinds, type Year } from './year-law.ts';
import {
  costOf,
  maintain,
  measureService,
  medianCost,
  openMeasuredLake,
  type Asked,
  type ServiceCost,
  type WorkCost,
} from './year-service.ts';

/*
 * The cost of a large lake: a year of events of 1,000 apps, in the layout of merged days, next to a lake of a million
 * events, and to one that has the events of a small app alone. Runs as `make bench-year` only.
 *
 * TRIBUTARY_BENCH_YEAR: events of the year (1e9 for `make bench-year`). TRIBUTARY_TEST_SEED: seed of the rows.
 * TRIBUTARY_BENCH_FOLDER: keeps the lakes there; a second run on the same day measures them again.
 */
const asked = process.env['TRIBUTARY_BENCH_YEAR'];
const events = Number(asked);
const seed = Number(process.env['TRIBUTARY_TEST_SEED'] || 1);
const apps = 1000;
/** The last day is three days ago: its rows are merged by default settings. */
const firstDayMs = (Math.floor(Date.now() / dayMs) - 3 - daysOfYear + 1) * dayMs;
const smallEvents = 1_000_000;
/** A day near the end of the year, whose new users were not seen on nearly a year of days. */
const day = daysOfYear - 10;
const rounds = inQuick(1, 5);
const lookups = 25;
const longestMs = 6 * 3_600_000;
/** Limit of the time in which the maintenance of a lake comes to rest, ms. */
const maintenanceMs = 1_800_000;
/** Space of an event on the disk with all that is derived of it, bytes. */
const diskBytesOfEvent = 50;
const wanted = { bytesPart: 2, ratio: 1.3, files: 3, seconds: 0.5 };

/** The lakes are large: they are not in the memory that other tests use as their disk. */
const parent = path.resolve(import.meta.dirname, '../../data/bench');

const kept = process.env['TRIBUTARY_BENCH_FOLDER'];

function makeFolder(): string {
  if (kept !== undefined) return path.resolve(kept);
  mkdirSync(parent, { recursive: true });
  const { bavail, bsize } = statfsSync(parent);
  const needed = events * diskBytesOfEvent + 2e9;
  if (bavail * bsize < needed)
    throw new Error(`${parent} has ${formatMb(bavail * bsize)} MB free, ${formatMb(needed)} MB are needed: set EVENTS`);
  const folder = mkdtempSync(path.join(parent, 'year-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
  return folder;
}

/** A lake of a year. */
interface YearLake {
  readonly name: string;
  readonly folder: string;
  readonly year: Year;
}

/** Returns the first app of medium size that has events on the day, also in a lake of few events. */
function chooseSmallApp(): number {
  const found = planDay({ seed, events, apps, firstDayMs }, day).find(
    ({ idApp, rows }) => idApp >= apps / 2 && rows.custom_event > 0,
  );
  if (found === undefined) throw new Error('no small app has an event on the day: set more EVENTS');
  return found.idApp;
}

const formatCost = ({ ms, cpuMs }: WorkCost): string => `${(ms / 1000).toFixed(1)} (${(cpuMs / 1000).toFixed(1)})`;

/** Builds a lake and runs its maintenance; returns the cells of the table, and the figures. */
async function build({ name, folder, year }: YearLake) {
  process.stdout.write(`building the lake of ${name}\n`);
  const isWritten = existsSync(path.join(folder, 'lake'));
  const writing = await costOf(async () => void (isWritten || (await writeYear(folder, year))));
  const { rows, bytes, paths } = await readLakeSize(folder);
  const maintenance = await maintain(folder, maintenanceMs);
  const { length: files } = paths;
  const cells = [
    name,
    formatCount(rows),
    String(files),
    formatMb(bytes),
    formatCost(writing),
    `${formatCost(maintenance)}${maintenance.isIdle ? '' : ', not finished'}`,
  ];
  return { cells, figures: { name, rows, files, bytes, writing, maintenance } };
}

async function reportBuild(lakes: readonly YearLake[]): Promise<void> {
  const built = [];
  for (const lake of lakes) built.push(await build(lake));
  const mostSeconds = maintenanceMs / 1000;
  const head = [
    'lake',
    'events',
    'files',
    'MB',
    'written in, s (CPU s)',
    `maintained in, at most ${mostSeconds} s (CPU s)`,
  ];
  reportBench(
    'year',
    head,
    built.map(({ cells }) => cells),
    built.map(({ figures }) => figures),
  );
}

const medianOf = (runs: readonly ExportRun[], pick: (run: ExportRun) => number): number => median(runs.map(pick));
const percent = (part: number, whole: number): string => ((100 * part) / Math.max(1, whole)).toFixed(1);

/** Measures the export of a small app and a day, in turn with the same in the lake of that app alone. */
async function reportSmallExport(duckdb: Duckdb, large: YearLake, alone: YearLake, idApp: number): Promise<void> {
  const runs = new Map<YearLake, ExportRun[]>([
    [large, []],
    [alone, []],
  ]);
  for (let round = 0; round < rounds; round += 1)
    for (const [{ folder, year }, done] of runs)
      done.push(await exportDay({ folder, year, day, event: 'customEvents', idApps: [idApp] }));
  const figures = [];
  for (const [{ name, folder, year }, done] of runs) {
    const ofDay = await listDay({ folder, year, day });
    const [first] = done;
    expect(await countUnsorted(duckdb, ofDay)).toBe(0);
    figures.push({
      name,
      rows: first?.rows ?? 0,
      files: first?.filesRead ?? 0,
      verified: await readVerifiedBytes(duckdb, first?.opened ?? [], idApp),
      ofDay: sumOf(ofDay.map(({ sizeBytes }) => sizeBytes)),
      read: medianOf(done, ({ bytesRead }) => bytesRead),
      ms: medianOf(done, ({ ms }) => ms),
      cpuMs: medianOf(done, ({ cpuMs }) => cpuMs),
    });
  }
  const [inYear, byItself] = [...runs.values()];
  expect(inYear?.[0]?.rows).toBe(byItself?.[0]?.rows);
  const ratio = (pick: (run: ExportRun) => number): string =>
    formatSpread((inYear ?? []).map((run, round) => pick(run) / pick(byItself?.[round] ?? run)));
  reportBench(
    'year-export',
    ['a small app, one day', 'rows', 'files', 'MB verified', '% of the day', 'MB read', 'ms', 'CPU ms'],
    [
      ...figures.map(({ name, rows, files, verified, ofDay, read, ms, cpuMs }) => [
        name,
        formatCount(rows),
        String(files),
        (verified / 1e6).toFixed(2),
        percent(verified, ofDay),
        (read / 1e6).toFixed(2),
        ms.toFixed(0),
        cpuMs.toFixed(0),
      ]),
      [
        `ratio (wanted ${wanted.ratio})`,
        '',
        '',
        '',
        `(wanted ${wanted.bytesPart})`,
        '',
        ratio(({ ms }) => ms),
        ratio(({ cpuMs }) => cpuMs),
      ],
    ],
    figures,
  );
}

/** Reports the live files of merged days per day, kind and 128 MiB. */
async function reportFiles({ folder }: YearLake): Promise<void> {
  const { files } = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
  const figures = yearKinds.map((kind) => {
    const days = new Map<string, DataFile[]>();
    for (const file of files) {
      const partition = path.dirname(file.publishedPath ?? '');
      if (partition.startsWith(`kind=${kind}/`)) days.set(partition, [...(days.get(partition) ?? []), file]);
    }
    const counts = [...days.values()].map(
      (ofDay) => ofDay.length / Math.ceil(sumOf(ofDay.map(({ sizeBytes }) => sizeBytes)) / targetBytes),
    );
    return { kind, days: days.size, mean: sumOf(counts) / counts.length, most: Math.max(...counts) };
  });
  reportBench(
    'year-files',
    ['live files', 'days', 'per day and 128 MiB', 'most', 'wanted at most'],
    figures.map(({ kind, days, mean, most }) => [
      kind,
      String(days),
      mean.toFixed(2),
      most.toFixed(2),
      String(wanted.files),
    ]),
    figures,
  );
}

/** Returns some events of all parts of the year. */
async function sampleEvents(duckdb: Duckdb, folder: string): Promise<Asked[]> {
  const { files } = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
  const step = Math.max(1, Math.floor(files.length / lookups));
  const some = files.filter((_, index) => index % step === 0).slice(0, lookups);
  const rows = [];
  for (const { absolutePath } of some)
    rows.push(
      ...(await duckdb.rows(
        `SELECT id_app, event_id FROM read_parquet(${sqlList([absolutePath])}) USING SAMPLE reservoir(1 ROWS) REPEATABLE (${seed})`,
      )),
    );
  return rows.map((row) => ({ idApp: Number(row['id_app']), eventId: String(row['event_id']) }));
}

/** Measures the service's work on both lakes in turn. */
async function reportService(duckdb: Duckdb, large: YearLake, small: YearLake): Promise<void> {
  const measured = [];
  for (const { name, folder } of [large, small])
    measured.push({
      name,
      lake: openMeasuredLake(folder, await sampleEvents(duckdb, folder)),
      costs: Array<ServiceCost>(),
    });
  // The first round opens what later ones have in memory.
  for (let round = 0; round <= rounds; round += 1)
    for (const { lake, costs } of measured) {
      const cost = await measureService(lake);
      if (round > 0) costs.push(cost);
    }
  for (const { lake } of measured) await lake.finder.close();
  const works = ['flush', 'seal', 'start', 'status', 'lookup'] as const;
  const medians = measured.map(({ costs }) => works.map((work) => medianCost(costs.map((cost) => cost[work]))));
  const [inLarge = [], inSmall = []] = medians;
  reportBench(
    'year-service',
    ['work, ms (CPU ms)', ...works],
    [
      ...measured.map(({ name }, index) => [
        name,
        ...(medians[index] ?? []).map(({ ms, cpuMs }) => `${ms.toFixed(0)} (${cpuMs.toFixed(0)})`),
      ]),
      [
        `ratio (wanted ${wanted.ratio})`,
        ...inLarge.map(({ ms, cpuMs }, index) => {
          const base = inSmall[index] ?? { ms: Number.NaN, cpuMs: Number.NaN };
          return `${(ms / base.ms).toFixed(2)} (${(cpuMs / base.cpuMs).toFixed(2)})`;
        }),
      ],
    ],
    measured.map(({ name, costs }) => ({ name, costs })),
  );
}

/** Measures exports of the new users and devices of a day, and compares them with the oracle. */
async function reportFirst(duckdb: Duckdb, { folder, year }: YearLake, idApp: number): Promise<void> {
  const all = Array.from({ length: apps }, (_, index) => index + 1);
  const figures = [];
  for (const event of ['newUsers', 'newDevices'] as const) {
    const oneApp = await exportDay({ folder, year, day, event, idApps: [idApp] });
    const whole = { folder, year, day, event, idApps: all };
    const run = await exportDay(whole);
    const startedAt = performance.now();
    const compared = await compareWithOracle(duckdb, whole, run.paths);
    expect(compared).toEqual({ rows: run.rows, missing: 0, wrong: 0 });
    expect(run.rows).toBeGreaterThan(0);
    const oracleSeconds = (performance.now() - startedAt) / 1000;
    figures.push({
      event,
      rows: run.rows,
      seconds: run.ms / 1000,
      oneAppSeconds: oneApp.ms / 1000,
      files: run.filesRead,
      oracleSeconds,
    });
  }
  reportBench(
    'year-first',
    ['new on one day', 'rows', 'equal to the oracle', 'files read', 'all apps, s', 'one app, s', 'oracle, s'],
    [
      ...figures.map(({ event, rows, files, seconds, oneAppSeconds, oracleSeconds }) => [
        event,
        formatCount(rows),
        'yes',
        String(files),
        seconds.toFixed(2),
        oneAppSeconds.toFixed(2),
        oracleSeconds.toFixed(1),
      ]),
      ['wanted', '', '', '', `${wanted.seconds}`, `${wanted.seconds}`, ''],
    ],
    figures,
  );
}

describe.runIf(asked !== undefined)('benchmark: year', () => {
  it(
    'A year of events costs the same as a million where the work is the same',
    async () => {
      expect(events, 'TRIBUTARY_BENCH_YEAR must be a number of events from 100,000').toBeGreaterThanOrEqual(100_000);
      const folder = makeFolder();
      const idApp = chooseSmallApp();
      const laked = (name: string, year: Partial<Year>): YearLake => ({
        name,
        folder: path.join(folder, name.replaceAll(/\W+/g, '-')),
        year: { seed, events, apps, firstDayMs, ...year },
      });
      const large = laked('a year', {});
      const small = laked('a million', { events: smallEvents });
      const alone = laked(`app ${idApp} alone`, { only: [idApp] });
      await reportBuild([large, small, alone]);
      const duckdb = await openDuckdb({ memoryMb: 2048, threads: 2, tempDir: path.join(folder, 'spill') });
      try {
        await reportSmallExport(duckdb, large, alone, idApp);
        await reportFiles(large);
        await reportFirst(duckdb, large, idApp);
        await reportService(duckdb, large, small);
      } finally {
        duckdb.close();
      }
    },
    longestMs,
  );
});
