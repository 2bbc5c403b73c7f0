import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { pino } from 'pino';
import { createClock, type Clock } from '../../src/runtime/clock.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import type { CrashPoint } from '../../src/runtime/crash-point.ts';
import { startCompact } from '../../src/compact/compact.ts';
import type { Compactor } from '../../src/compact/wait-for-repair.ts';
import type { CompactOptions } from '../../src/compact/compact-options.ts';
import type { Enrichment } from '../../src/enrichment/enrichment.ts';
import { openDuckdb, type Duckdb, type SqlRow } from '../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { findLakeState, type Totals } from '../../src/lake/log/lake-state.ts';
import { listLog, readCommit } from '../../src/lake/log/log-files.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import type { StreamReader } from '../../src/stream/stream.ts';

/**
 * Returns a UUID of the form of version 7 of an event received then, in the order of the calls at millisecond
 * precision.
 */
export function newEventId(receivedAtMs = Date.now()): string {
  const time = receivedAtMs.toString(16).padStart(12, '0');
  const random = randomUUID();
  return `${time.slice(0, 8)}-${time.slice(8)}-7${random.slice(15)}`;
}

/** Returns an event line as ingest publishes it; given members override the defaults. */
export function eventLine(members: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
  const nowMs = Date.now();
  return {
    event_id: newEventId(nowMs),
    kind: 'login',
    id_app: 1,
    event_time: Math.floor(nowMs / 1000),
    received_at: nowMs,
    custom_user_id: 'u1',
    ...members,
  };
}

export interface TestCompactOptions extends Partial<CompactOptions> {
  readonly clock?: Clock;
  readonly crashPoint?: CrashPoint;
  readonly enrichment?: Enrichment;
}

/** Starts a compactor on `folder/lake` with short ages and without sealing by default. */
export function startTestCompact(
  folder: string,
  reader: StreamReader,
  options: TestCompactOptions = {},
): Promise<Compactor> {
  const { clock, crashPoint, enrichment, ...rest } = options;
  return startCompact(
    {
      reader,
      clock: clock ?? createClock(0),
      metrics: createMetrics(),
      logger: pino({ level: process.env['TEST_LOG'] ?? 'silent' }),
      ...(crashPoint === undefined ? {} : { crashPoint }),
      enrichment,
    },
    {
      lakeDir: path.join(folder, 'lake'),
      spoolDir: path.join(folder, 'spool'),
      flushAgeMs: 20,
      flushMaxBytes: 64 * 1024 * 1024,
      flushMaxRows: 250_000,
      sealAgeMs: 3_600_000,
      sealMaxBytes: 128 * 1024 * 1024,
      retentionMs: 86_400_000,
      duckdbMemoryMb: 512,
      ...rest,
    },
  );
}

let engine: Promise<Duckdb> | undefined;

/**
 * Opens one engine for all queries of a test file: its start takes longer than most of them. It caches no files, since
 * tests replace them.
 */
async function openEngine(): Promise<Duckdb> {
  const opened = await openDuckdb({ memoryMb: 512, threads: 1 });
  await opened.run('SET enable_external_file_cache = false');
  return opened;
}

export async function query(sql: string): Promise<SqlRow[]> {
  return (await (engine ??= openEngine())).rows(sql);
}

/**
 * Returns the totals of a lake's newest commit: one small file, cheap to poll. Undefined while the lake is missing, or
 * if the commit is another engine's.
 */
export async function readTotals(lakeDir: string): Promise<Totals | undefined> {
  const { table } = lakePaths(lakeDir);
  const newest = (await listLog(table)).commits.at(-1);
  const commit = newest === undefined ? undefined : await readCommit(table, newest);
  return findLakeState(commit?.actions.find(({ commitInfo }) => commitInfo !== undefined)?.commitInfo)?.totals;
}

/** Reads all committed rows through the snapshot, sorted by event id. */
export async function readRows(folder: string, columns = '*'): Promise<SqlRow[]> {
  const { emptyFile, files } = await readSnapshot(path.join(folder, 'lake', 'events'));
  const list = sqlList([emptyFile, ...files.map((file) => file.absolutePath)]);
  return query(
    `SELECT ${columns} FROM read_parquet(${list}, union_by_name = true, hive_partitioning = false) ORDER BY event_id`,
  );
}
