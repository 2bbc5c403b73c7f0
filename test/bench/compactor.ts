import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { parseConfig } from '../../src/config.ts';
import type { CompactOptions } from '../../src/compact/compact-options.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { openTable, type Table } from '../../src/lake/log/table.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';
import { bundleChild } from '../helpers/bundled.ts';
import { testFolder } from '../helpers/folder.ts';
import type { TestNats } from '../helpers/nats.ts';
import { waitFor } from '../helpers/wait.ts';
import type { ProcessorCost } from './duckdb-copy.ts';
import { readPeakBytes } from './peak-memory.ts';
import { readProcessSeconds } from './process-cost.ts';

/** A run of the compactor; settings that are absent have their defaults. */
export interface CompactorRun {
  /** Folder of the data; the lake is in its `lake`. */
  readonly folder: string;
  readonly nats: TestNats;
  readonly options?: Partial<CompactOptions>;
  /** Whether the compactor enriches events with locations and devices. */
  readonly enriches?: boolean;
  /** Ends the run once it returns true; called every few milliseconds. */
  readonly isDone: (table: Table) => boolean;
}

const longestMs = 600_000;

/** Runs the real compactor in a separate process until `isDone`. Seconds count from the last step of its start. */
export async function runCompactor({
  folder,
  nats,
  options,
  enriches = false,
  isDone,
}: CompactorRun): Promise<ProcessorCost> {
  const { flushAgeMs, flushMaxBytes, flushMaxRows, sealAgeMs, sealMaxBytes, retentionMs, duckdbMemoryMb } = parseConfig(
    {},
  );
  const settings = {
    flushAgeMs,
    flushMaxBytes,
    flushMaxRows,
    sealAgeMs,
    sealMaxBytes,
    retentionMs,
    duckdbMemoryMb,
    checkpointEvery: 100,
    ...options,
  };
  const { url, address } = nats.current();
  const job = {
    folder,
    enriches,
    url: url.replace('nats://', `nats://${address.user}:${address.password}@`),
    options: settings,
  };
  const program = bundleChild(testFolder(), 'compact-child');
  const child = spawn(process.execPath, [program, JSON.stringify(job)], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  try {
    const ended = exited.then(([code]) => Promise.reject(new Error(`the compactor ended with ${String(code)}`)));
    await Promise.race([once(createInterface({ input: child.stdout }), 'line'), ended]);
    ended.catch(() => undefined);
    const pid = child.pid ?? 0;
    const cpuBefore = readProcessSeconds(pid);
    const startedAt = performance.now();
    const table = await openTable(lakePaths(path.join(folder, 'lake')).table, {
      clock: createClock(0),
      crashPoint: noCrashPoint,
    });
    const seen = waitFor(
      'the compactor has done its work',
      async () => {
        await table.refresh();
        return isDone(table);
      },
      longestMs,
    );
    await Promise.race([seen, ended]);
    const seconds = (performance.now() - startedAt) / 1000;
    return { seconds, cpuSeconds: readProcessSeconds(pid) - cpuBefore, peakBytes: readPeakBytes(pid) };
  } finally {
    child.kill('SIGTERM');
    await exited;
  }
}
