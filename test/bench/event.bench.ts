import { randomUUID } from 'node:crypto';
import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { eventColumns } from '../../src/datasets/event-fields.ts';
import { formatCount } from '../../src/demo/demo-report.ts';
import { dataPaths } from '../../src/config.ts';
import { openDuckdb, type Duckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { listFiles } from '../helpers/folder-bytes.ts';
import { testFolder } from '../helpers/folder.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';
import { addDataFiles, openBenchLake, readLakeSize, type FilePlan } from './bench-lake.ts';
import { reportBench, sumOf } from './bench-report.ts';
import { benchRows, formatMb } from './bench-size.ts';

/*
 * Duration of an event lookup over HTTP, one at a time, and of building the index of ids. The lake has sealed files,
 * sorted by app and time. One event in five came under a key, and one in fifty up to three days late.
 * TRIBUTARY_BENCH_KEEP: a folder that keeps the lake for later runs.
 */
const keptFolder = process.env['TRIBUTARY_BENCH_KEEP'];
const rows = benchRows(5_000_000, 100_000_000);
const rowsOfFile = 2_000_000;
const keyedEvery = 5;
const apps = 10;
const rowsOfApp = rowsOfFile / apps;
const questions = 300;
const longestMs = 3_600_000;
const dayMs = 86_400_000;
const maxLateMs = 3 * dayMs;

/** Plans sealed files, one per day; the last day ends now. */
function planLake(nowMs: number): FilePlan {
  const files = Math.ceil(rows / rowsOfFile);
  return Array.from({ length: files }, (_, index) => {
    const startMs = nowMs - (files - index) * dayMs;
    // Sorted by app and time from the start.
    const ms = `(${startMs} + (i % ${rowsOfApp}) * ${dayMs} // ${rowsOfApp})`;
    const lateMs = `CASE WHEN i % 50 IN (1, 5) THEN CAST(hash(i) % ${maxLateMs} AS BIGINT) ELSE 0 END`;
    const receivedMs = `least(${ms} + ${lateMs}, ${nowMs})`;
    const [time, received] = [ms, receivedMs].map((each) => `make_timestamptz((${each}) * 1000)`);
    const values: Readonly<Record<string, string>> = {
      event_id: `CASE WHEN i % ${keyedEvery} = 0 THEN substr(id, 1, 14) || '8' ELSE format('{:08x}-{:04x}-7', (${receivedMs}) >> 16, (${receivedMs}) & 65535) END || substr(id, 16)`,
      kind: "'custom_event'",
      date: `CAST(${time} AS DATE)`,
      id_app: `1 + i // ${rowsOfApp}`,
      event_time: String(time),
      received_at: String(received),
      available_at: String(received),
      custom_event_name: "'level_start'",
      custom_user_id: 'substr(id, 20)',
    };
    const select = eventColumns.map(({ name, type }) => `CAST(${values[name] ?? 'NULL'} AS ${type}) AS ${name}`);
    const count = Math.min(rowsOfFile, rows - index * rowsOfFile);
    return [
      `kind=custom_event/date=${new Date(startMs).toISOString().slice(0, 10)}/bench.parquet`,
      `SELECT ${select.join(', ')} FROM (SELECT range AS i, uuid()::VARCHAR AS id FROM range(${count}))`,
    ];
  });
}

interface Asked {
  readonly idApp: number;
  readonly eventId: string;
}

/** Returns some events from all over the lake. */
async function sampleEvents(duckdb: Duckdb, paths: readonly string[], where: string): Promise<Asked[]> {
  const found: Asked[] = [];
  const ofFile = Math.ceil(questions / paths.length);
  for (const file of paths)
    for (const row of await duckdb.rows(
      `SELECT id_app, event_id FROM (SELECT id_app, event_id FROM read_parquet(${sqlList([file])}) WHERE ${where}) USING SAMPLE ${ofFile} ROWS`,
    ))
      found.push({ idApp: Number(row['id_app']), eventId: String(row['event_id']) });
  return found.slice(0, questions);
}

async function findToken(service: TestService, idApp: string, isMade: boolean): Promise<string> {
  const words = isMade ? ['token', idApp] : ['add', idApp, '--platform', 'web'];
  return String((await service.command('app', ...words))['token']);
}

type Ask = (asked: Asked) => Promise<{ readonly status: number; readonly state: string; readonly ms: number }>;

function createAsk(service: TestService, tokens: readonly string[]): Ask {
  return async ({ idApp, eventId }) => {
    const startedAt = performance.now();
    const answer = await fetch(`${service.s2s}/v1/event?idApp=${idApp}&eventId=${eventId}`, {
      headers: { authorization: tokens[idApp - 1] ?? '' },
    });
    const { state = '' } = (await answer.json()) as { state?: string };
    return { status: answer.status, state, ms: performance.now() - startedAt };
  };
}

/** Looks up events one after the other; returns the sorted durations, ms. */
async function measure(ask: Ask, asked: readonly Asked[], state: string): Promise<number[]> {
  const times: number[] = [];
  for (const [index, one] of asked.entries()) {
    let answer = await ask(one);
    // The quota allows so many lookups of ten apps.
    if (answer.status === 429) await waitFor('the quota', async () => (answer = await ask(one)).status !== 429);
    expect([one.eventId, answer.status, answer.state]).toEqual([one.eventId, 200, state]);
    if (index >= 10) times.push(answer.ms);
  }
  return times.toSorted((a, b) => a - b);
}

const shareOf = (times: readonly number[], share: number): string =>
  (times[Math.ceil(times.length * share) - 1] ?? 0).toFixed(0);

describe('benchmark: event', () => {
  it(
    'An event of a large lake is looked up at once',
    async () => {
      const dataDir = path.join(keptFolder ?? testFolder(), 'data');
      const isMade = existsSync(dataPaths(dataDir).lake);
      const service = await startTestService({ dataDir });
      const duckdb = await openDuckdb({ memoryMb: 2048, threads: 2, tempDir: path.join(dataDir, 'tmp') });
      try {
        const tokens: string[] = [];
        for (let idApp = 1; idApp <= apps; idApp += 1) tokens.push(await findToken(service, String(idApp), isMade));
        await service.stop();
        if (!isMade) await addDataFiles(await openBenchLake(dataDir), duckdb, planLake(Date.now()));
        const { paths, bytes } = await readLakeSize(dataDir);
        const plain = await sampleEvents(duckdb, paths, "substr(event_id, 15, 1) = '7'");
        const keyed = await sampleEvents(duckdb, paths, "substr(event_id, 15, 1) = '8'");
        await service.startAgain();
        const ask = createAsk(service, tokens);
        const never = (events: readonly Asked[]): Asked[] =>
          events.map(({ idApp, eventId }) => ({ idApp, eventId: eventId.slice(0, 15) + randomUUID().slice(15) }));
        const neverKeyed = keyed.map(({ idApp }) => ({
          idApp,
          eventId: `${randomUUID().slice(0, 14)}8${randomUUID().slice(15)}`,
        }));
        const foreign = plain.map(({ idApp, eventId }) => ({ idApp: (idApp % apps) + 1, eventId }));
        expect([plain.length, keyed.length]).toEqual([questions, questions]);
        const startedAt = performance.now();
        await waitFor(
          'the ids are indexed',
          // For an event that exists, the lookup may read only its candidate files.
          async () => neverKeyed[0] !== undefined && (await ask(neverKeyed[0])).status === 200,
          longestMs,
        );
        const indexSeconds = (performance.now() - startedAt) / 1000;
        const { eventIndex } = dataPaths(dataDir);
        const indexBytes = sumOf(listFiles(eventIndex).map((name) => statSync(path.join(eventIndex, name)).size));
        const figures = {
          'by id': await measure(ask, plain, 'in_lake'),
          'under a key': await measure(ask, keyed, 'in_lake'),
          'never seen': await measure(ask, never(plain), 'never_seen'),
          'never seen, under a key': await measure(ask, neverKeyed, 'never_seen'),
          "another app's": await measure(ask, foreign, 'never_seen'),
        };
        const head = [`of ${formatCount(rows)} events`, 'p50, ms', 'p99, ms', 'longest, ms'];
        const lines = Object.entries(figures).map(([what, times]) => [
          what,
          shareOf(times, 0.5),
          shareOf(times, 0.99),
          shareOf(times, 1),
        ]);
        const index = `indexed in ${indexSeconds.toFixed(0)} s: ${formatMb(indexBytes)} MB next to ${formatMb(bytes)} MB of lake`;
        reportBench('event', head, [...lines, [index, '', '', '']], { rows, indexSeconds, indexBytes, bytes, figures });
      } finally {
        duckdb.close();
        await service.destroy();
      }
    },
    longestMs,
  );
});
