import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { eventColumns } from '../../src/datasets/event-fields.ts';
import { keyedEventIds } from '../../src/datasets/event-id.ts';
import { formatCount } from '../../src/demo/demo-report.ts';
import { openDuckdb, type Duckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../src/lake/sql/literals.ts';
import { testFolder } from '../helpers/folder.ts';
import { openBenchFlush, type Spool } from './bench-flush.ts';
import { addDataFiles, openBenchLake, readLakeSize, type FilePlan } from './bench-lake.ts';
import { formatSpread, median, reportBench } from './bench-report.ts';
import { benchRows, formatMb, inQuick, isFull } from './bench-size.ts';
import { writeEventSpool } from './event-spool.ts';

/*
 * Cost of remembering Idempotency-Keys. Three flushes are measured against the number of events stored under keys
 * within the last day: of events under new keys, of three such events, and of repeated requests from all over the day.
 * One process, one lake after the other. TRIBUTARY_BENCH_KEYS: the numbers of keys, such as 0,100000000.
 */
const usual = isFull ? [0, 1_000_000, 10_000_000, 100_000_000] : [0, benchRows(1_000_000, 0), benchRows(10_000_000, 0)];
const remembered = process.env['TRIBUTARY_BENCH_KEYS']?.split(',').map(Number) ?? usual;
const keyed = benchRows(100_000, 100_000);
const few = 3;
const repeats = 1000;
const flushes = inQuick(2, 5);
const rowsOfFile = 1_000_000;
const longestMs = 3_600_000;

/** Plans files of events stored under keys over the last twenty hours; DuckDB generates them. */
function planKeyedRows(rows: number, nowMs: number): FilePlan {
  const files = Math.ceil(rows / rowsOfFile);
  return Array.from({ length: files }, (_, index) => {
    const time = `make_timestamptz((${nowMs} - ${files - index} * ${Math.floor(72_000_000 / files)}) * 1000 + i)`;
    const values: Readonly<Record<string, string>> = {
      event_id: "substr(random_id, 1, 14) || '8' || substr(random_id, 16)",
      kind: "'custom_event'",
      date: `CAST(${time} AS DATE)`,
      id_app: '1 + i % 4',
      event_time: time,
      received_at: time,
      available_at: time,
      custom_event_name: "'level_start'",
    };
    const select = eventColumns.flatMap(({ name, type }) =>
      values[name] === undefined ? [] : [`CAST(${values[name]} AS ${type}) AS ${name}`],
    );
    const count = Math.min(rowsOfFile, rows - index * rowsOfFile);
    return [
      `_young/keyed-${index}.parquet`,
      `SELECT ${select.join(', ')} FROM (SELECT range AS i, uuid()::VARCHAR AS random_id FROM range(${count}))`,
    ];
  });
}

/** Writes the same events as received now, each under a new key. */
async function keySpool(plain: string, folder: string, events: number): Promise<Spool> {
  const file = path.join(folder, 'keyed.ndjson');
  const run = randomBytes(8).toString('hex');
  const lines = (await readFile(plain, 'utf8')).split('\n').slice(0, events);
  const received = Date.now();
  const text = lines.map((line, index) => {
    const request = { idApp: 1, key: `${run}-${index}`, method: 'customEvent', eventTexts: [line] };
    return line
      .replace(/"event_id":"[^"]+"/, `"event_id":"${keyedEventIds(request)(0)}"`)
      .replace(/"received_at":\d+/, `"received_at":${received}`);
  });
  await writeFile(file, `${text.join('\n')}\n`);
  return { file, events };
}

/** Writes some events of the lake again, from all its files. */
async function repeatSpool(duckdb: Duckdb, files: readonly string[], plain: string, folder: string): Promise<Spool> {
  const file = path.join(folder, 'repeats.ndjson');
  const ids: string[] = [];
  for (const from of files) {
    const rows = await duckdb.rows(
      `SELECT event_id FROM read_parquet(${sqlText(from)}) LIMIT ${Math.ceil(repeats / files.length)}`,
    );
    ids.push(...rows.map((row) => String(row['event_id'])));
  }
  const lines = (await readFile(plain, 'utf8')).split('\n').slice(0, ids.length);
  const received = Date.now();
  const text = lines.map((line, index) =>
    line
      .replace(/"event_id":"[^"]+"/, `"event_id":"${ids[index]}"`)
      .replace(/"received_at":\d+/, `"received_at":${received}`),
  );
  await writeFile(file, `${text.join('\n')}\n`);
  return { file, events: lines.length };
}

interface Figures {
  readonly remembered: number;
  /** Number of events that the flushes have stored. */
  readonly stored: number;
  readonly warmUpSeconds: number;
  readonly seconds: readonly number[];
  readonly cpuSeconds: readonly number[];
  readonly fewMs: readonly number[];
  /** Durations of the first and the second flush of repeats only. */
  readonly repeatsMs: readonly number[];
  readonly residentBytes: number;
}

async function measure(rows: number, plain: string): Promise<Figures> {
  const folder = testFolder();
  const table = await openBenchLake(folder);
  const duckdb = await openDuckdb({ memoryMb: 1024, threads: 2, tempDir: path.join(folder, 'tmp') });
  try {
    if (rows > 0) await addDataFiles(table, duckdb, planKeyedRows(rows, Date.now()));
    const { paths: learnt } = await readLakeSize(folder);
    const startedAt = performance.now();
    const lake = await openBenchFlush(table, duckdb, folder);
    const warmUpSeconds = (performance.now() - startedAt) / 1000;
    const [seconds, cpuSeconds, fewMs]: [number[], number[], number[]] = [[], [], []];
    // The first round creates what every flush needs.
    for (let round = 0; round <= flushes; round += 1) {
      const spool = await keySpool(plain, folder, keyed);
      const [usage, began] = [process.cpuUsage(), performance.now()];
      await lake.flush(spool);
      const { user, system } = process.cpuUsage(usage);
      const took = (performance.now() - began) / 1000;
      const small = await keySpool(plain, folder, few);
      const smallBegan = performance.now();
      await lake.flush(small);
      if (round === 0) continue;
      seconds.push(took);
      cpuSeconds.push((user + system) / 1e6);
      fewMs.push(performance.now() - smallBegan);
    }
    const { rows: stored } = await readLakeSize(folder);
    const repeatsMs: number[] = [];
    for (const _ of rows > 0 ? ['first', 'second'] : []) {
      const again = await repeatSpool(duckdb, learnt, plain, folder);
      const began = performance.now();
      await lake.flush(again);
      repeatsMs.push(performance.now() - began);
    }
    expect((await readLakeSize(folder)).rows).toBe(stored);
    return {
      remembered: rows,
      stored: stored - rows,
      warmUpSeconds,
      seconds,
      cpuSeconds,
      fewMs,
      repeatsMs,
      residentBytes: process.memoryUsage.rss(),
    };
  } finally {
    duckdb.close();
  }
}

describe('benchmark: keys', () => {
  it(
    'A flush of keyed events is measured next to the remembered keys',
    async () => {
      const plain = path.join(testFolder(), 'plain.ndjson');
      await writeEventSpool(plain, keyed, 1);
      const figures: Figures[] = [];
      for (const rows of remembered) figures.push(await measure(rows, plain));
      for (const { stored } of figures) expect(stored).toBe((flushes + 1) * (keyed + few));
      const none = figures[0];
      const rows = figures.map(
        ({ remembered: count, warmUpSeconds, seconds, cpuSeconds, fewMs, repeatsMs, residentBytes }) => [
          formatCount(count),
          warmUpSeconds.toFixed(1),
          median(seconds).toFixed(2),
          (median(seconds) - median(none?.seconds ?? [])).toFixed(2),
          median(cpuSeconds).toFixed(2),
          formatSpread(seconds.map((took) => took / median(none?.seconds ?? []))),
          median(fewMs).toFixed(0),
          repeatsMs.length === 0 ? '-' : median(repeatsMs).toFixed(0),
          formatMb(residentBytes),
        ],
      );
      const head = ['keys remembered', 'learnt in, s', `flush of ${formatCount(keyed)} keyed, s`, 'more than none, s'];
      head.push('CPU s', 'of none', `flush of ${few}, ms`, `${formatCount(repeats)} repeats, ms`, 'process, MB');
      reportBench('keys', head, rows, figures);
    },
    longestMs,
  );
});
