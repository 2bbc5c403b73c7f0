import { fork } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { readPeakBytes } from './peak-memory.ts';
import { readProcessSeconds } from './process-cost.ts';

/** What one run of anything has cost. */
export interface Cost {
  readonly seconds: number;
  /** Most memory that its process has held. */
  readonly peakBytes: number;
}

/** The same, with the processor seconds that its process has used meanwhile, in its own code and the kernel's. */
export interface ProcessorCost extends Cost {
  readonly cpuSeconds: number;
}

/** What DuckDB itself needs for a COPY, without the start of its process. */
export interface CopyCost extends ProcessorCost {
  readonly rows: number;
  /** Processor time of its process, with the start of it. */
  readonly cpuSeconds: number;
}

/**
 * Runs a COPY in a fresh process with DuckDB's own settings: what can be had on this machine, to hold a stage against.
 */
export async function runDuckdbCopy(sql: string, threads = availableParallelism()): Promise<CopyCost> {
  const child = fork(path.join(import.meta.dirname, 'duckdb-child.mjs'), [JSON.stringify({ sql, threads })]);
  const exited = once(child, 'exit');
  const ended = exited.then(([code]) => Promise.reject(new Error(`duckdb ended with ${String(code)}: ${sql}`)));
  const [answer] = (await Promise.race([once(child, 'message'), ended])) as [Omit<CopyCost, 'peakBytes'>];
  ended.catch(() => undefined);
  const peakBytes = readPeakBytes(child.pid ?? 0);
  const cpuSeconds = readProcessSeconds(child.pid ?? 0);
  child.disconnect();
  await exited;
  return { ...answer, peakBytes, cpuSeconds };
}
