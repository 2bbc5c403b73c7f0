import { randomBytes, randomUUID } from 'node:crypto';
import { copyFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { openBatchTables } from '../../src/lake/batch/batch-tables.ts';
import { createRecentKeys } from '../../src/lake/batch/recent-keys.ts';
import { flushBatch } from '../../src/compact/batch/flush.ts';
import type { AddAction } from '../../src/lake/log/actions.ts';
import { writeCheckpoint } from '../../src/lake/log/checkpoint.ts';
import { openDuckdb, type Duckdb } from '../../src/lake/sql/duckdb.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import type { Epoch } from '../../src/lake/log/lake-state.ts';
import { loadTableState } from '../../src/lake/log/snapshot.ts';
import type { Table } from '../../src/lake/log/table.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';
import { openBenchLake } from './bench-lake.ts';
import { median } from './bench-report.ts';

/** What the log costs with so many live files, milliseconds; each the middle of its runs. */
export interface LogCost {
  readonly liveFiles: number;
  /** Live files when all was measured: each commit and flush has added one. */
  readonly liveFilesAfter: number;
  /** A commit of one add: written, fsynced, linked, fsynced. */
  readonly commitMs: number;
  /** A whole flush of the spool's events, the commit within it. */
  readonly flushMs: number;
  /** The list of live files with their statistics, made from the log's state. */
  readonly snapshotMs: number;
  /** A checkpoint. */
  readonly checkpointMs: number;
  /** Reading the table from that checkpoint: what a start and each export does. */
  readonly loadMs: number;
}

const addsOfCommit = 10_000;
const commits = 101;
const fewRuns = 5;
const dayMs = 86_400_000;

/** An add as a seal commits it, of a file that is not there: nothing here opens one. Long ago, as most of a lake is. */
function makeAdd(index: number): AddAction {
  const startMs = Date.UTC(2010, 0, 1) + (index % 3650) * dayMs;
  const [start, end] = [new Date(startMs).toISOString(), new Date(startMs + dayMs - 1).toISOString()];
  const date = start.slice(0, 10);
  const bounds = (time: string, idApp: number) => ({
    event_id: randomUUID(),
    kind: 'custom_event',
    date,
    id_app: idApp,
    event_time: time,
    received_at: time,
    available_at: time,
  });
  const nullCount = { event_id: 0, kind: 0, date: 0, id_app: 0, event_time: 0, received_at: 0, available_at: 0 };
  return {
    path: `kind=custom_event/date=${date}/${randomUUID()}.parquet`,
    partitionValues: {},
    size: 64_000_000,
    modificationTime: startMs,
    dataChange: false,
    stats: JSON.stringify({
      numRecords: 1_000_000,
      minValues: bounds(start, 1),
      maxValues: bounds(end, 500),
      nullCount,
    }),
    tags: { sha256: randomBytes(32).toString('hex') },
  };
}

/** The middle of the times that a piece of work takes, milliseconds. */
async function timeRuns(runs: number, work: (run: number) => unknown): Promise<number> {
  const took: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    const startedAt = performance.now();
    await work(run);
    took.push(performance.now() - startedAt);
  }
  return median(took);
}

/** Flushes the same spool over and over, as the compactor does. */
async function timeFlushes(
  table: Table,
  duckdb: Duckdb,
  folder: string,
  spool: { file: string; events: number },
): Promise<number> {
  const writer = randomUUID();
  const clock = createClock(0);
  let epoch: Epoch = { appId: `BENCH@${randomUUID()}`, streamId: 'BENCH', position: 0, dedupeThrough: 0 };
  await table.commit(() => ({ cause: 'epoch', actions: [{ txn: { appId: epoch.appId, version: 0 } }], epoch, writer }));
  const tables = await openBatchTables(duckdb);
  const keys = createRecentKeys({ tables, table, onDamage: () => undefined });
  await keys.warmUp(clock.nowMs(), new AbortController().signal);
  const dependencies = {
    table,
    followers: [],
    tables,
    keys,
    clock,
    crashPoint: noCrashPoint,
    failedDir: lakePaths(path.join(folder, 'lake')).failed,
    writer,
  };
  const file = path.join(folder, 'batch.ndjson');
  const bytes = (await stat(spool.file)).size;
  return timeRuns(fewRuns, async () => {
    await copyFile(spool.file, file);
    const sequence = epoch.position + 1;
    const batch = {
      file,
      firstSequence: sequence,
      lastSequence: sequence,
      lastHash: '',
      messages: 1,
      events: spool.events,
      bytes,
    };
    epoch = (await flushBatch(dependencies, batch, epoch)).epoch;
  });
}

/** Grows a log to so many live files, through the table's own commits, and measures what it then costs. */
export async function measureLogCost(
  folder: string,
  liveFiles: number,
  spool: { file: string; events: number },
): Promise<LogCost> {
  const table = await openBenchLake(folder);
  const duckdb = await openDuckdb({ memoryMb: 1024, threads: 2 });
  try {
    for (let made = 0; made < liveFiles; made += addsOfCommit) {
      const actions = Array.from({ length: Math.min(addsOfCommit, liveFiles - made) }, (_, index) => ({
        add: makeAdd(made + index),
      }));
      await table.commit(() => ({ cause: 'seal', actions }));
    }
    const commitMs = await timeRuns(commits, (run) =>
      table.commit(() => ({ cause: 'flush', actions: [{ add: makeAdd(liveFiles + run) }] })),
    );
    const snapshotMs = await timeRuns(fewRuns, () => table.snapshot());
    const flushMs = await timeFlushes(table, duckdb, folder, spool);
    const checkpointMs = await timeRuns(fewRuns, () => writeCheckpoint(duckdb, table.dir, table.state(), noCrashPoint));
    const loadMs = await timeRuns(fewRuns, () => loadTableState(table.dir));
    return { liveFiles, liveFilesAfter: table.state().files.size, commitMs, flushMs, snapshotMs, checkpointMs, loadMs };
  } finally {
    duckdb.close();
  }
}
