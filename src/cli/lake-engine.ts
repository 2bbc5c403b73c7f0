import { availableParallelism } from 'node:os';
import type { Config } from '../config.ts';
import type { DuckdbOptions, Duckdb } from '../lake/sql/duckdb.ts';
import { openCommandEngine } from '../lake/command-engine.ts';
import { ensureLake, lakePaths } from '../lake/lake.ts';
import { openTable, type Table } from '../lake/log/table.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import type { OpenData } from './command.ts';

type Limits = Pick<DuckdbOptions, 'memoryMb' | 'threads'>;

/** Returns the memory of the setting, at least `minMb`, and one thread per `mbPerThread` of it. */
export function engineLimits({ duckdbMemoryMb }: Config, minMb: number, mbPerThread: number): Limits {
  const threads = Math.max(1, Math.min(availableParallelism(), Math.floor(duckdbMemoryMb / mbPerThread)));
  return { memoryMb: Math.max(minMb, duckdbMemoryMb), threads };
}

/** Runs work on the lake with an engine, with the service running or stopped. */
export async function withEngine<T>({ paths }: OpenData, limits: Limits, work: (duckdb: Duckdb) => Promise<T>) {
  const engine = await openCommandEngine(paths.lake, limits);
  try {
    return await work(engine.duckdb);
  } finally {
    await engine.close();
  }
}

interface EventsTable extends Pick<OpenData, 'clock'> {
  readonly table: Table;
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  readonly crashPoint: typeof noCrashPoint;
}

/** Runs work on the events table, as `withEngine`; creates a missing lake. */
export async function withEvents<T>(opened: OpenData, limits: Limits, work: (events: EventsTable) => Promise<T>) {
  const { clock, config, paths } = opened;
  await ensureLake(paths.lake, { clock, retentionMs: config.retentionMs });
  return withEngine(opened, limits, async (duckdb) => {
    const table = await openTable(lakePaths(paths.lake).table, { clock, crashPoint: noCrashPoint });
    return work({ table, lakeDir: paths.lake, duckdb, clock, crashPoint: noCrashPoint });
  });
}
