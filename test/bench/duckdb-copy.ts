import { fork } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { readPeakBytes } from './peak-memory.ts';
import { readProcessSeconds } from './process-cost.ts';

/** Cost of one run. */
export interface Cost {
  readonly seconds: number;
  readonly peakBytes: number;
}

/** Cost with the processor seconds, user and system, of the process. */
export interface ProcessorCost extends Cost {
  readonly cpuSeconds: number;
}

/** Cost of a COPY without the start of its process. */
export interface CopyCost extends ProcessorCost {
  readonly rows: number;
  /** Processor time of its process, including the start. */
  readonly cpuSeconds: number;
}

/** Runs a COPY in a new DuckDB process with default settings: the machine's limit, as a reference for a stage. */
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
