import { rm } from 'node:fs/promises';
import path from 'node:path';
import { pino } from 'pino';
import { expect, it } from 'vitest';
import { createFirstSeenTask } from '../../src/compact/seal/first-seen-task.ts';
import { eventColumns } from '../../src/datasets/event-fields.ts';
import { formatCount } from '../../src/demo/demo-report.ts';
import { firstSeenFolder } from '../../src/lake/first-seen/first-seen-parts.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';
import { createExportArea, type Credentials, type RunningArea } from '../helpers/export-area.ts';
import { readFound } from '../helpers/first-seen.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { runHere } from '../helpers/worker-here.ts';
import { addDataFiles, openBenchLake, readLakeSize, type FilePlan } from './bench-lake.ts';
import { median, reportBench, sumOf } from './bench-report.ts';
import { benchRows, formatMb, isQuick, rounds } from './bench-size.ts';

/*
 * Exports of the new users and devices of one day, in a lake of 365 days and 1,000 apps, without and with first-seen
 * parts, and the cost of the parts. A user or device has 20 events, at random times. Exports run in this process: the
 * start of a worker takes as long with parts and without.
 */
const rows = benchRows(3_000_000, 100_000_000);
const days = isQuick ? 60 : 365;
const apps = isQuick ? 50 : 1000;
const rowsOfDay = Math.ceil(rows / days);
const subjects = Math.ceil(rows / 20);
const dayMs = 86_400_000;
/** The newest day is yesterday, so that there are parts of days, months and years. */
const firstDayMs = Math.floor(Date.now() / dayMs) * dayMs - days * dayMs;
const longestMs = 7_200_000;

const dateOf = (day: number): string => new Date(firstDayMs + day * dayMs).toISOString().slice(0, 10);

/** Plans a sealed file of logins per day, sorted by app. */
function planDays(): FilePlan {
  return Array.from({ length: days }, (_, day) => {
    const time = `make_timestamptz(${(firstDayMs + day * dayMs) * 1000} + CAST(i * ${Math.floor((dayMs * 1000) / rowsOfDay)} AS BIGINT))`;
    const values: Readonly<Record<string, string>> = {
      event_id: 'uuid()::VARCHAR',
      kind: "'login'",
      date: `DATE '${dateOf(day)}'`,
      id_app: `1 + (subject % ${apps})`,
      event_time: time,
      received_at: time,
      available_at: time,
      custom_user_id: `'player-' || subject`,
      lvid: `md5(subject::VARCHAR)`,
    };
    const select = eventColumns.map(({ name, type }) => `CAST(${values[name] ?? 'NULL'} AS ${type}) AS ${name}`);
    // Each day has some new subjects.
    const subject = `hash(range + ${day * rowsOfDay}) % ${Math.ceil((subjects * (day + 1)) / days)}`;
    return [
      `kind=login/date=${dateOf(day)}/day.parquet`,
      `SELECT ${select.join(', ')} FROM (SELECT range AS i, ${subject} AS subject FROM range(${rowsOfDay})) ORDER BY id_app, event_time`,
    ];
  });
}

/** Returns the CPU seconds of this process during some work. */
async function cpuOf(work: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

async function exportDay(running: RunningArea, user: Credentials, event: string, idApps: string): Promise<number[]> {
  const day = dateOf(days - 1);
  const query = `event=${event}&selectors=idApp,customUserId,lvid,tsEvent&dateFrom=${day}&dateTo=${day}&timezone=UTC${idApps}`;
  const startedAt = performance.now();
  const { status, errorMessage, files = [] } = await running.waitForEnd(user, await running.create(user, query));
  expect(status, errorMessage).toBe('Success!');
  return [(performance.now() - startedAt) / 1000, sumOf(files.map((file) => file.rows))];
}

it(
  'New users and devices of one day take far less time with first-seen parts, and are the same',
  async () => {
    const folder = temporaryFolder();
    const lakeDir = path.join(folder, 'lake');
    const area = createExportArea(folder);
    for (let idApp = 1; idApp <= apps; idApp += 1)
      await area.addApp({ idApp, platform: 'web', idAccount: 1, title: `Game ${idApp}` });
    const user = await area.addUser({});
    const table = await openBenchLake(folder);
    const duckdb = await openDuckdb({ memoryMb: 1024, threads: 1, tempDir: path.join(folder, 'spill') });
    await addDataFiles(table, duckdb, planDays());
    const running = await area.start({ runAttempt: runHere });
    const measured: Record<string, number[]>[] = [];
    async function measure(): Promise<void> {
      const figures: Record<string, number[]> = {};
      for (const event of ['newUsers', 'newDevices'])
        for (const [name, idApps] of [
          ['all apps', ''],
          ['one app', '&idApp=7'],
        ] as const) {
          const runs: number[][] = [];
          for (let round = 0; round < rounds; round += 1) runs.push(await exportDay(running, user, event, idApps));
          figures[`${event}, ${name}`] = [median(runs.map(([seconds = 0]) => seconds)), runs[0]?.[1] ?? 0];
        }
      measured.push(figures);
    }

    await measure();
    const dependencies = {
      table,
      clock: createClock(0),
      crashPoint: noCrashPoint,
      logger: pino({ level: 'silent' }),
      lakeDir,
    };
    const task = createFirstSeenTask(dependencies, 0);
    const { signal } = new AbortController();
    const cpuSeconds = await cpuOf(async () => {
      for (;;) {
        const before = (await readFound(lakeDir)).parts.map(({ id }) => id).join();
        await task.run(duckdb, signal);
        if ((await readFound(lakeDir)).parts.map(({ id }) => id).join() === before) break;
      }
    });
    const { parts } = await readFound(lakeDir);
    await measure();
    const [without = {}, withParts = {}] = measured;
    for (const [name, [, exported]] of Object.entries(without)) expect(withParts[name]?.[1]).toBe(exported);
    expect(without['newUsers, all apps']?.[1]).toBeGreaterThan(0);
    const lake = await readLakeSize(folder);
    const bytes = sumOf(parts.map(({ sizeBytes }) => sizeBytes));
    reportBench(
      'first-seen',
      ['export of one day', 'rows', 'without parts, s', 'with parts, s'],
      Object.entries(without).map(([name, [seconds = 0, exported = 0]]) => [
        name,
        formatCount(exported),
        seconds.toFixed(2),
        (withParts[name]?.[0] ?? 0).toFixed(2),
      ]),
      { lake: { rows: lake.rows, bytes: lake.bytes }, parts: parts.length, bytes, cpuSeconds, without, withParts },
    );
    process.stdout.write(
      `${formatCount(lake.rows)} rows, ${formatMb(lake.bytes)} MB: ${parts.length} parts, ${formatMb(bytes)} MB, ${cpuSeconds.toFixed(1)} CPU s\n`,
    );
    expect(parts.length).toBeLessThan(days);
    await running.stop();
    duckdb.close();
    await rm(firstSeenFolder(lakeDir), { recursive: true });
  },
  longestMs,
);
