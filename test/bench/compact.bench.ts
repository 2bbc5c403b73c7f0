import { rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { formatCount } from '../../src/demo/demo-report.ts';
import { parseConfig } from '../../src/config.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlList, sqlText } from '../../src/lake/sql/literals.ts';
import { readHistory } from '../../src/lake/history.ts';
import type { Table } from '../../src/lake/log/table.ts';
import { eventColumns } from '../../src/datasets/event-fields.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { temporaryFolder, testFolder } from '../helpers/folder.ts';
import { startTestNats } from '../helpers/nats.ts';
import { addDataFiles, columnList, openBenchLake, readLakeSize, type FilePlan } from './bench-lake.ts';
import { median, reportBench } from './bench-report.ts';
import { benchRows, formatMb, inQuick, rounds } from './bench-size.ts';
import { runCompactor } from './compactor.ts';
import { runDuckdbCopy, type Cost, type ProcessorCost } from './duckdb-copy.ts';
import { publishSpool, writeEventSpool } from './event-spool.ts';
import { measureLogCost } from './log-cost.ts';

/*
 * Cost of the path from the stream to the lake. The real compactor with default settings reads a real broker; DuckDB's
 * COPY of the same lines, from one file to one file, runs alternately. Then sealing is compared with a COPY of the same
 * young files. Last, the log alone is measured as the lake grows. Only ratios of one run count.
 */
const rows = benchRows(1_000_000, 1_000_000);
const gibibyte = 1024 ** 3;
const longestMs = 1_800_000;
const folder = temporaryFolder();
const lakeFolder = path.join(folder, 'compacted');

/** Returns DuckDB's shortest way from the lines to one file: typed columns, no validation, no handling of bad lines. */
function copySql(spool: string, file: string): string {
  const computed: Readonly<Record<string, string>> = {
    event_time: 'to_timestamp(event_time)',
    received_at: 'make_timestamptz(received_at * 1000)',
    date: 'CAST(to_timestamp(event_time) AS DATE)',
    available_at: 'now()',
  };
  const inFile = eventColumns.filter(({ name }) => name !== 'date' && name !== 'available_at');
  const read = inFile.map(({ name, type }) => `${name}: ${sqlText(type === 'TIMESTAMPTZ' ? 'BIGINT' : type)}`);
  const select = eventColumns.map(({ name }) => `${computed[name] ?? name} AS ${name}`);
  return `COPY (SELECT ${select.join(', ')} FROM read_json(${sqlText(spool)}, format = 'newline_delimited', columns = {${read.join(', ')}}))
    TO ${sqlText(file)} (FORMAT parquet, COMPRESSION zstd)`;
}

/** A run of the compactor, and the number of committed rows when it was read. */
interface Compacted extends ProcessorCost {
  readonly rows: number;
}

/**
 * Moves the spool through a new broker into a new lake. The stream has one more flush than the run waits for: the last
 * flush of a stream is not full and waits for its age.
 */
async function compactSpool(spool: string): Promise<Compacted> {
  await rm(lakeFolder, { recursive: true, force: true });
  const nats = await startTestNats({ maxStoreBytes: 16 * gibibyte, streamMaxBytes: 15 * gibibyte });
  try {
    await publishSpool(
      spool,
      (await stat(spool)).size + 2 * parseConfig({}).flushMaxBytes,
      openPublisher(await nats.connect()),
    );
    let streamed = 0;
    const isDone = (table: Table): boolean => (streamed = table.lake().totals.streamed) >= rows;
    const cost = await runCompactor({ folder: lakeFolder, nats, isDone });
    return { ...cost, rows: streamed };
  } finally {
    await nats.stop();
  }
}

/** Returns SQL that reads all columns of files which may omit some. */
function allColumnsSql(files: readonly string[]): string {
  const none = eventColumns.map(({ name, type }) => `CAST(NULL AS ${type}) AS ${name}`);
  return `SELECT ${none.join(', ')} WHERE false UNION ALL BY NAME SELECT * FROM read_parquet(${sqlList(files)}, union_by_name = true, hive_partitioning = false)`;
}

/** Creates a lake of young files as flushes leave them: rows in stream order, rows of every date in each file. */
async function writeYoungLake(
  target: string,
  source: readonly string[],
  youngFiles: number,
  dates: number,
): Promise<void> {
  const duckdb = await openDuckdb({ memoryMb: 4096, threads: 2, tempDir: path.join(target, 'spill') });
  const first = `DATE '2024-06-01'`;
  await duckdb.run(
    `CREATE TEMP TABLE numbered AS SELECT * REPLACE (${first} + (n % ${dates})::INT AS date, (${first} + (n % ${dates})::INT)::TIMESTAMPTZ + to_microseconds(n * 10000) AS event_time)
     FROM (SELECT ${columnList}, row_number() OVER () - 1 AS n FROM (${allColumnsSql(source)}) LIMIT ${rows})`,
  );
  const plan: FilePlan = Array.from({ length: youngFiles }, (_, index) => {
    const [from, to] = [index, index + 1].map((part) => Math.floor((rows * part) / youngFiles));
    return [
      `_young/${String(index).padStart(6, '0')}.parquet`,
      `SELECT ${columnList} FROM numbered WHERE n >= ${from} AND n < ${to}`,
    ];
  });
  await addDataFiles(await openBenchLake(target), duckdb, plan);
  duckdb.close();
}

/** Returns the seconds from the compactor's claim on the lake to its last seal, by the timestamps of the log. */
async function readSealSeconds(target: string): Promise<number> {
  const history = await readHistory(path.join(target, 'lake'), 1000);
  const at = (cause: string): number => Date.parse(history.find((entry) => entry.cause === cause)?.at ?? '');
  return (at('seal') - at('start')) / 1000;
}

interface SealFigures {
  readonly youngFiles: number;
  readonly dates: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly filesOut: number;
  readonly rowsOut: number;
  readonly seal: Cost;
  readonly copy: Cost;
}

/** Seals a lake of young files with the real compactor, and writes the same partitions with a COPY of DuckDB. */
async function measureSeal(source: readonly string[], youngFiles: number, dates: number): Promise<SealFigures> {
  const target = testFolder();
  await writeYoungLake(target, source, youngFiles, dates);
  const before = await readLakeSize(target);
  const copy = await runDuckdbCopy(
    `COPY (SELECT * FROM read_parquet(${sqlList(before.paths)}, hive_partitioning = false) ORDER BY kind, date, id_app, event_time)
     TO ${sqlText(path.join(target, 'copy'))} (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (kind, date), WRITE_PARTITION_COLUMNS true)`,
    1,
  );
  const nats = await startTestNats();
  try {
    const cost = await runCompactor({
      folder: target,
      nats,
      options: { sealAgeMs: 10 },
      isDone: (table) => table.snapshot().files.every((file) => !file.young),
    });
    const after = await readLakeSize(target);
    const seal = { ...cost, seconds: await readSealSeconds(target) };
    return {
      youngFiles,
      dates,
      bytesIn: before.bytes,
      bytesOut: after.bytes,
      filesOut: after.paths.length,
      rowsOut: after.rows,
      seal,
      copy,
    };
  } finally {
    await nats.stop();
  }
}

describe('benchmark: compact', () => {
  it(
    'The compactor stores a backlog in the lake, measured next to one COPY of the same lines',
    async () => {
      const spool = path.join(folder, 'events.ndjson');
      await writeEventSpool(spool, rows, 1);
      const copyFile = path.join(folder, 'copy.parquet');
      const copies: Compacted[] = [];
      const compacted: Compacted[] = [];
      for (let round = 0; round < rounds; round += 1) {
        copies.push(await runDuckdbCopy(copySql(spool, copyFile)));
        compacted.push(await compactSpool(spool));
      }
      const spoolBytes = (await stat(spool)).size;
      const lake = await readLakeSize(lakeFolder);
      expect(copies[0]?.rows).toBe(rows);
      expect(lake.rows).toBeGreaterThanOrEqual(rows);

      const rateOf = (runs: readonly Compacted[]): number => median(runs.map((run) => run.rows / run.seconds));
      const line = (name: string, runs: readonly Compacted[], bytesOfRow: number, files: number): string[] => {
        const rate = rateOf(runs);
        const peak = Math.max(...runs.map((run) => run.peakBytes));
        return [
          name,
          formatCount(Math.round(rate)),
          formatMb((rate * spoolBytes) / rows),
          (rateOf(copies) / rate).toFixed(2),
          median(runs.map((run) => (run.cpuSeconds / run.rows) * 1e6)).toFixed(1),
          formatMb(peak),
          bytesOfRow.toFixed(1),
          String(files),
        ];
      };
      const table = [
        line("DuckDB's own COPY", copies, (await stat(copyFile)).size / rows, 1),
        line('tributary', compacted, lake.bytes / lake.rows, lake.paths.length),
      ];
      const head = [
        `${formatCount(rows)} events of ${Math.round(spoolBytes / rows)} bytes`,
        'rows/s',
        'MB/s of lines',
        'time of COPY',
        'CPU us an event',
        'peak MB',
        'bytes an event',
        'files',
      ];
      reportBench('compact', head, table, {
        rows,
        spoolBytes,
        lakeBytesOfRow: lake.bytes / lake.rows,
        copies,
        compacted,
      });
    },
    longestMs,
  );

  it(
    'The compactor seals young files, measured next to one COPY of them into the same partitions',
    async () => {
      const source = (await readLakeSize(lakeFolder)).paths;
      const figures: SealFigures[] = [];
      for (const [youngFiles, dates] of [
        [16, 1],
        [64, 2],
        [64, 100],
      ] as const)
        figures.push(await measureSeal(source, youngFiles, dates));
      expect(figures.map(({ rowsOut }) => rowsOut)).toEqual(figures.map(() => rows));
      const table = figures.map(({ youngFiles, dates, bytesIn, bytesOut, filesOut, seal, copy }) => [
        `${youngFiles} files, ${formatMb(bytesIn)} MB, of ${dates} dates`,
        seal.seconds.toFixed(2),
        formatMb(bytesIn, seal.seconds),
        formatCount(Math.round(rows / seal.seconds)),
        copy.seconds.toFixed(2),
        (seal.seconds / copy.seconds).toFixed(2),
        formatMb(seal.peakBytes),
        (bytesOut / rows).toFixed(1),
        String(filesOut),
      ]);
      const head = [
        `seal ${formatCount(rows)} events`,
        'seconds',
        'MB/s',
        'rows/s',
        'COPY, s',
        'time of COPY',
        'peak MB',
        'bytes an event',
        'files',
      ];
      reportBench('compact-seal', head, table, { rows, figures });
    },
    longestMs,
  );

  it(
    'The compactor commits to a log of many live files',
    async () => {
      const spool = { file: path.join(folder, 'few.ndjson'), events: 1000 };
      await writeEventSpool(spool.file, spool.events, 1);
      const figures = [];
      for (const liveFiles of [100, 1000, inQuick(10_000, 100_000)])
        figures.push(await measureLogCost(testFolder(), liveFiles, spool));
      for (const { liveFiles, liveFilesAfter } of figures) expect(liveFilesAfter).toBeGreaterThan(liveFiles);
      const [fewest] = figures;
      const table = figures.map(({ liveFiles, ...costs }) => [
        formatCount(liveFiles),
        (costs.flushMs / (fewest?.flushMs ?? 0)).toFixed(2),
        ...[costs.commitMs, costs.flushMs, costs.snapshotMs, costs.checkpointMs, costs.loadMs, costs.readMs].map((ms) =>
          ms.toFixed(ms < 100 ? 1 : 0),
        ),
      ]);
      reportBench(
        'compact-log',
        [
          'live files',
          'flush, times that at 100',
          'commit ms',
          `flush of ${formatCount(spool.events)} ms`,
          'file list ms',
          'checkpoint ms',
          'load ms',
          'files of a day ms',
        ],
        table,
        figures,
      );
    },
    longestMs,
  );
});
