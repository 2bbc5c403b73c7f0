import { createWriteStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { divideMemory } from '../../src/compact/compact-options.ts';
import { createDueRows } from '../../src/compact/seal/seal-policy.ts';
import { sealDueFiles } from '../../src/compact/seal/seal.ts';
import { events } from '../../src/datasets/dataset.ts';
import { eventColumns } from '../../src/datasets/event-fields.ts';
import { formatCount } from '../../src/demo/demo-report.ts';
import { cataloguePaths } from '../../src/lake/catalogue/catalogue-files.ts';
import { openPacks } from '../../src/lake/catalogue/packs.ts';
import { refreshCatalogue } from '../../src/lake/catalogue/refresh.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import type { DataFile } from '../../src/lake/log/snapshot.ts';
import { openDuckdb, type Duckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../src/lake/sql/literals.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';
import { temporaryFolder, testFolder } from '../helpers/folder.ts';
import { eventLine } from '../helpers/lake.ts';
import { addDataFiles, columnList, openBenchLake } from './bench-lake.ts';
import { reportBench } from './bench-report.ts';
import { benchRows } from './bench-size.ts';
import { writeEventSpool } from './event-spool.ts';

/*
 * CPU seconds that the parameter catalogue adds to sealing. Both run in one process and in one engine, as in the
 * compactor. Folds run as in the service: after a seal, unless the previous one was within twenty times its duration.
 * TRIBUTARY_SAMPLE_EVENTS: a file of real events, repeated as needed, instead of generated ones.
 */
const rows = benchRows(1_000_000, 300_000);
const longestMs = 900_000;
const sealing = { sealAgeMs: 0, sealMaxBytes: 128 * 1024 ** 2 };
const mostFiles = 64;
/** The default setting. */
const memoryMb = 2048;
const restAfter = 20;

/** Returns the CPU time of this process with all its threads, seconds. */
async function cpuOf(work: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

/** Returns SQL that reads the rows of a spool, spread over dates. */
function rowsSql(spool: string, dates: number): string {
  const first = `DATE '2024-06-01'`;
  const computed: Readonly<Record<string, string>> = {
    event_time: `(${first} + (n % ${dates})::INT)::TIMESTAMPTZ + to_microseconds(n * 10000)`,
    received_at: 'make_timestamptz(received_at * 1000)',
    date: `CAST(${first} + (n % ${dates})::INT AS DATE)`,
    available_at: 'now()',
  };
  const read = eventColumns
    .filter(({ name }) => name !== 'date' && name !== 'available_at')
    .map(({ name, type }) => `${name}: ${sqlText(type === 'TIMESTAMPTZ' ? 'BIGINT' : type)}`);
  const select = eventColumns.map(({ name }) => `${computed[name] ?? name} AS ${name}`);
  return `SELECT ${select.join(', ')}, n FROM (SELECT *, row_number() OVER () - 1 AS n
    FROM read_json(${sqlText(spool)}, format = 'newline_delimited', columns = {${read.join(', ')}}))`;
}

const sample = process.env['TRIBUTARY_SAMPLE_EVENTS'];

/** Writes real events as lines, and repeats the file with other users until there are enough. */
async function writeSampleSpool(file: string, from: string, count: number): Promise<void> {
  const sampled = gunzipSync(await readFile(from))
    .toString()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
  const lines = function* (): Generator<string> {
    for (let index = 0; index < count; index += 1) {
      const event = sampled[index % sampled.length];
      const turn = Math.floor(index / sampled.length);
      const line = eventLine({
        kind: 'custom_event',
        event_time: event.eventTimestamp,
        custom_user_id: `${event.customUserId}${turn}`,
        lvid: event.lvid,
        custom_event_name: event.customEventName,
        custom_event_params: event.customEventParams,
      });
      yield `${JSON.stringify(line)}\n`;
    }
  };
  await pipeline(Readable.from(lines()), createWriteStream(file));
}

interface Figures {
  readonly youngFiles: number;
  readonly dates: number;
  readonly seal: number;
  readonly parts: number;
  readonly fold: number;
}

async function measure(duckdb: Duckdb, spool: string, youngFiles: number, dates: number): Promise<Figures> {
  const target = testFolder();
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE lines AS ${rowsSql(spool, dates)}`);
  const table = await openBenchLake(target);
  const part = Math.ceil(rows / youngFiles);
  const plan = Array.from({ length: youngFiles }, (_, index) => {
    const where = `n >= ${index * part} AND n < ${(index + 1) * part}`;
    return [`_young/${index}.parquet`, `SELECT ${columnList} FROM lines WHERE ${where}`] as const;
  });
  await addDataFiles(table, duckdb, plan);
  await duckdb.run('DROP TABLE lines');
  const lakeDir = path.join(target, 'lake');
  const { staging } = lakePaths(lakeDir);
  const engine = await openDuckdb({
    memoryMb: divideMemory(memoryMb).sealMb,
    threads: 1,
    tempDir: path.join(target, 'spill'),
    boundRowGroups: true,
  });
  const dueRows = createDueRows(sealing);
  const clock = createClock(0);
  const dependencies = {
    dataset: events,
    table,
    duckdb: engine,
    clock,
    crashPoint: noCrashPoint,
    stagingDir: staging,
    dueRows,
  };
  const packs = await openPacks(cataloguePaths(lakeDir).packs, engine);
  const figures = { youngFiles, dates, seal: 0, parts: 0, fold: 0 };
  let nextFoldMs = 0;
  for (;;) {
    const before = table.snapshot().version;
    figures.seal += await cpuOf(() => sealDueFiles(dependencies, sealing, new Map()));
    const keys = packs.keys();
    const isNew = (file: DataFile): boolean => !file.young && !keys.has(file.sha256 ?? '');
    const { files, emptyFile, version } = table.snapshot();
    const sources = files.filter(isNew).map((file) => ({ key: file.sha256 ?? '', file, rows: file.numRecords ?? 0 }));
    if (version === before) break;
    for (let from = 0; from < sources.length; from += mostFiles)
      figures.parts += await cpuOf(() => packs.add(engine, sources.slice(from, from + mostFiles), emptyFile));
    if (performance.now() < nextFoldMs) continue;
    const begunMs = performance.now();
    figures.fold += await cpuOf(() =>
      refreshCatalogue(lakeDir, engine, packs, { tableVersion: version, missingFiles: 0 }),
    );
    nextFoldMs = performance.now() + restAfter * (performance.now() - begunMs);
  }
  engine.close();
  return figures;
}

describe('benchmark: catalogue', () => {
  it(
    'The catalogue of parameters is built from sealed files, measured next to their sealing',
    async () => {
      const spool = path.join(temporaryFolder(), 'events.ndjson');
      await (sample === undefined ? writeEventSpool(spool, rows, 1) : writeSampleSpool(spool, sample, rows));
      const duckdb = await openDuckdb({ memoryMb: 4096, threads: 2 });
      const figures: Figures[] = [];
      for (const [youngFiles, dates] of [
        [16, 1],
        [64, 2],
        [64, 100],
      ] as const)
        figures.push(await measure(duckdb, spool, youngFiles, dates));
      duckdb.close();
      expect(figures.every(({ seal, parts }) => seal > 0 && parts > 0)).toBe(true);
      reportBench(
        'catalogue',
        [`${formatCount(rows)} events sealed`, 'CPU of sealing, s', 'of parts, s', 'of folds, s', 'more, %'],
        figures.map(({ youngFiles, dates, seal, parts, fold }) => [
          `${youngFiles} files of ${dates} dates`,
          seal.toFixed(2),
          parts.toFixed(2),
          fold.toFixed(2),
          ((100 * (parts + fold)) / seal).toFixed(1),
        ]),
        { rows, figures },
      );
    },
    longestMs,
  );
});
