import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { eventColumns } from '../../src/datasets/event-fields.ts';
import { openLakeReader, formatCount } from '../../src/demo/demo-report.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { testFolder } from '../helpers/folder.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';
import { addDataFiles, openBenchLake, type FilePlan } from './bench-lake.ts';
import { reportBench } from './bench-report.ts';
import { benchRows, formatMb } from './bench-size.ts';
import { readPeakBytes } from './peak-memory.ts';

/*
 * Duration of a start after a day of events, next to the start of an empty service: until the service is ready, until
 * an import has its 200, and until that event can be read. An event under a key also waits until the keys of the day
 * are loaded.
 */
const rows = benchRows(5_000_000, 100_000_000);
/** Rows of a day in which every event came under a key. */
const keyedRows = benchRows(10_000_000, 10_000_000);
const rowsOfFile = 1_000_000;
const dayMs = 86_400_000;
const keyedEvery = 5;
const longestMs = 3_600_000;

/** Plans files of the last day, of which one event in `keyed` is stored under its own key; 0: none. */
function planDay(keyed: number, nowMs: number, total = rows): FilePlan {
  const files = Math.ceil(total / rowsOfFile);
  return Array.from({ length: files }, (_, index) => {
    const startMs = nowMs - dayMs + Math.floor((index * dayMs) / files);
    const time = `make_timestamptz((${startMs} + i * ${Math.floor(dayMs / files)} // ${rowsOfFile}) * 1000)`;
    const version = keyed === 0 ? "'7'" : `CASE WHEN i % ${keyed} = 0 THEN '8' ELSE '7' END`;
    const values: Readonly<Record<string, string>> = {
      event_id: `substr(id, 1, 14) || ${version} || substr(id, 16)`,
      kind: "'custom_event'",
      date: `CAST(${time} AS DATE)`,
      id_app: '1',
      event_time: time,
      received_at: time,
      available_at: time,
      custom_event_name: "'level_start'",
    };
    const select = eventColumns.map(({ name, type }) => `CAST(${values[name] ?? 'NULL'} AS ${type}) AS ${name}`);
    const count = Math.min(rowsOfFile, total - index * rowsOfFile);
    return [
      `_young/day-${index}.parquet`,
      `SELECT ${select.join(', ')} FROM (SELECT range AS i, uuid()::VARCHAR AS id FROM range(${count}))`,
    ];
  });
}

interface Figures {
  readonly lake: string;
  readonly readySeconds: number;
  readonly answeredSeconds: number;
  /** Seconds until a plain event, and one under a key, can be read. */
  readonly plainSeconds: number;
  readonly keyedSeconds: number;
  readonly peakBytes: number;
}

async function importOne(service: TestService, token: string, user: string, key?: string): Promise<boolean> {
  const answer = await fetch(`${service.s2s}/v1/customEvent/?idApp=1`, {
    method: 'POST',
    headers: { authorization: token, ...(key === undefined ? {} : { 'idempotency-key': key }) },
    body: JSON.stringify({ customUserId: user, customEventName: 'after_start' }),
  });
  return answer.ok;
}

async function measureStart(lake: string, plan: (nowMs: number) => FilePlan): Promise<Figures> {
  const dataDir = path.join(testFolder(), lake.replaceAll(/\W+/g, '-'));
  const service = await startTestService({ dataDir });
  try {
    const token = String((await service.command('app', 'add', '1', '--platform', 'web'))['token']);
    await service.stop();
    const duckdb = await openDuckdb({ memoryMb: 1024, threads: 2, tempDir: path.join(dataDir, 'tmp') });
    const files = plan(Date.now());
    if (files.length > 0) await addDataFiles(await openBenchLake(dataDir), duckdb, files);
    duckdb.close();
    const startedAt = performance.now();
    const passed = (): number => (performance.now() - startedAt) / 1000;
    await service.startAgain();
    const readySeconds = passed();
    await waitFor('an import is answered', () => importOne(service, token, 'plain'));
    const answeredSeconds = passed();
    const reader = await openLakeReader(dataDir);
    const seen = async (user: string): Promise<number> => {
      const sql = `SELECT 1 FROM custom_event WHERE date >= current_date - 1 AND custom_event_name = 'after_start' AND custom_user_id = '${user}'`;
      await waitFor(`the event of ${user} can be read`, async () => (await reader.query(sql)).length === 1, longestMs);
      return passed();
    };
    const plainSeconds = await seen('plain');
    expect(await importOne(service, token, 'keyed', 'a key')).toBe(true);
    const keyedSeconds = await seen('keyed');
    reader.close();
    const compactor = service.processes().find(({ role }) => role === 'compact');
    const peakBytes = readPeakBytes(compactor?.pid ?? 0);
    await service.stop();
    return { lake, readySeconds, answeredSeconds, plainSeconds, keyedSeconds, peakBytes };
  } finally {
    await service.destroy();
  }
}

describe('benchmark: restart', () => {
  it(
    'A start after a day of events accepts imports at once and flushes soon',
    async () => {
      const figures = [
        await measureStart('empty', () => []),
        await measureStart(`${formatCount(rows)} events, none under a key`, (nowMs) => planDay(0, nowMs)),
        await measureStart(`${formatCount(rows)} events, a fifth under keys`, (nowMs) => planDay(keyedEvery, nowMs)),
        await measureStart(`${formatCount(keyedRows)} events, all under keys`, (nowMs) => planDay(1, nowMs, keyedRows)),
      ];
      const head = ['lake', 'ready, s', 'first 200, s', 'readable, s', 'keyed one readable, s', 'compactor, peak MB'];
      reportBench(
        'restart',
        head,
        figures.map((figure) => [
          figure.lake,
          ...[figure.readySeconds, figure.answeredSeconds, figure.plainSeconds, figure.keyedSeconds].map((seconds) =>
            seconds.toFixed(1),
          ),
          formatMb(figure.peakBytes),
        ]),
        figures,
      );
      expect(figures).toHaveLength(4);
    },
    longestMs,
  );
});
