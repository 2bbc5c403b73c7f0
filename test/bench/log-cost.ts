import { randomBytes, randomUUID } from 'node:crypto';
import { toAddFilter } from '../../src/lake/files/prune.ts';
import type { AddAction } from '../../src/lake/log/actions.ts';
import { writeCheckpoint } from '../../src/lake/log/checkpoint.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { loadTableState, readSnapshot } from '../../src/lake/log/snapshot.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';
import { openBenchFlush, type Spool } from './bench-flush.ts';
import { openBenchLake } from './bench-lake.ts';
import { median } from './bench-report.ts';

/** Cost of the log for a number of live files, milliseconds; each is the median of its runs. */
export interface LogCost {
  readonly liveFiles: number;
  /** Live files after the measurement: each commit and flush has added one. */
  readonly liveFilesAfter: number;
  /** A commit of one add: written, fsynced, linked, fsynced. */
  readonly commitMs: number;
  /** A complete flush of the spool's events with its commit. */
  readonly flushMs: number;
  /** Creating the list of live files after a commit of one add. */
  readonly snapshotMs: number;
  readonly checkpointMs: number;
  /** Reading the table from that checkpoint, as a start does. */
  readonly loadMs: number;
  /** Reading the live files that may have rows of one day, as an export does. */
  readonly readMs: number;
}

const addsOfCommit = 10_000;
const commits = 101;
const fewRuns = 5;
const dayMs = 86_400_000;
const firstDayMs = Date.UTC(2010, 0, 1);

/**
 * Returns an add as a seal commits it, of a missing file, which no step here opens. It is old, as most files of a lake
 * are.
 */
function makeAdd(index: number): AddAction {
  const startMs = firstDayMs + (index % 3650) * dayMs;
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

/** Returns the median duration of some work, milliseconds. */
async function timeRuns(runs: number, work: (run: number) => unknown): Promise<number> {
  const took: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    const startedAt = performance.now();
    await work(run);
    took.push(performance.now() - startedAt);
  }
  return median(took);
}

/** Grows a log to a number of live files through the table's commits, and measures its cost. */
export async function measureLogCost(folder: string, liveFiles: number, spool: Spool): Promise<LogCost> {
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
    table.snapshot();
    const snapshots: number[] = [];
    for (let run = 0; run < fewRuns; run += 1) {
      await table.commit(() => ({ cause: 'flush', actions: [{ add: makeAdd(liveFiles + commits + run) }] }));
      snapshots.push(await timeRuns(1, () => table.snapshot()));
    }
    const snapshotMs = median(snapshots);
    const flushes = await openBenchFlush(table, duckdb, folder);
    const flushMs = await timeRuns(fewRuns, () => flushes.flush(spool));
    const checkpointMs = await timeRuns(fewRuns, () => writeCheckpoint(duckdb, table.dir, table.state(), noCrashPoint));
    const loadMs = await timeRuns(fewRuns, () => loadTableState(table.dir));
    const needed = toAddFilter({ eventTime: { fromMs: firstDayMs, toMs: firstDayMs + dayMs - 1 } });
    const readMs = await timeRuns(fewRuns, () => readSnapshot(table.dir, needed));
    const liveFilesAfter = table.state().files.size;
    return { liveFiles, liveFilesAfter, commitMs, flushMs, snapshotMs, checkpointMs, loadMs, readMs };
  } finally {
    duckdb.close();
  }
}
