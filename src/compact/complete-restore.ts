/**
 * The last step of a restore: makes a lake that was copied from a backup ready for a service.
 *
 * In: the lake at the version of the backup, and the tail of the stream that it lacks. Out: the same lake with the
 * tail, committed by a compactor; sealed files at their final paths, since no reader has an older version; a commit
 * that names the backup.
 * Crash: the restore is started over.
 */
import path from 'node:path';
import { applyDueReplacements } from '../lake/files/deferred-replacement.ts';
import { showMergedFolders } from '../lake/files/merged-folders.ts';
import { writeCheckpoint } from '../lake/log/checkpoint.ts';
import { openDuckdb, type Duckdb } from '../lake/sql/duckdb.ts';
import { ensureLake, listTables, openDatasetTable, tablePaths } from '../lake/lake.ts';
import { copyTableState } from '../lake/log/table-state.ts';
import type { Dataset } from '../datasets/dataset.ts';
import type { Clock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import type { Logger } from '../runtime/logger.ts';
import { createMetrics } from '../runtime/metrics.ts';
import { pause } from '../runtime/async/retry.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import type { StreamReader } from '../stream/stream.ts';
import { startCompact } from './compact.ts';
import type { CompactOptions } from './compact-options.ts';

interface CompleteRestoreDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

type CompleteRestoreOptions = Pick<
  CompactOptions,
  'lakeDir' | 'spoolDir' | 'flushMaxBytes' | 'flushMaxRows' | 'sealMaxBytes' | 'retentionMs' | 'duckdbMemoryMb'
>;

const pollIntervalMs = 50;
/** Short, since no further messages arrive. */
const flushAgeMs = 100;
/** Time after which failing flushes, as on a full disk, end the restore, ms. */
const stuckMs = 60_000;
const lockWaitMs = 10_000;

/** Commits the tail to the lake. Errors: those of the compactor; `disk` if its flushes keep failing. */
async function takeIn(
  backlog: StreamReader,
  { clock, logger, signal }: CompleteRestoreDependencies,
  options: CompleteRestoreOptions,
): Promise<void> {
  const { lastSequence } = await backlog.state();
  const purged = { below: 0 };
  const reader: StreamReader = { ...backlog, purgeBelow: async (sequence) => void (purged.below = sequence) };
  const compactor = await startCompact(
    { reader, clock, metrics: createMetrics(), logger },
    { ...options, flushAgeMs, sealAgeMs: Number.MAX_SAFE_INTEGER },
  );
  let failure: unknown;
  compactor.failed.catch((error: unknown) => void (failure = error));
  try {
    let movedMs = performance.now();
    while (purged.below < lastSequence) {
      const before = purged.below;
      await pause(pollIntervalMs, signal);
      if (signal.aborted)
        throw new AppError('stopping', 'the restore was stopped', { hint: 'Run the restore again; it starts over.' });
      if (failure !== undefined) throw failure;
      if (purged.below > before) movedMs = performance.now();
      const [problem] = compactor.facts().problems;
      if (problem !== undefined && performance.now() - movedMs > stuckMs)
        throw new AppError('disk', problem.message, {
          retryable: false,
          hint: 'Remove the cause, and run the restore again; it starts over.',
        });
    }
  } finally {
    await compactor.stop();
  }
}

/** Moves the rewrites of sealed files to their final paths, and commits the name of the backup. */
async function settleTable(
  duckdb: Duckdb,
  dataset: Dataset,
  clock: Clock,
  madeAt: string,
  { lakeDir, retentionMs }: CompleteRestoreOptions,
): Promise<void> {
  const paths = tablePaths(lakeDir, dataset);
  // Also creates the folders that were empty in the backup.
  const table = await openDatasetTable(lakeDir, dataset, { clock, crashPoint: noCrashPoint, retentionMs });
  const lock = await waitForLock(paths.maintenanceLock, 'a restore', lockWaitMs);
  try {
    await table.refresh();
    const now = { nowMs: clock.nowMs(), retentionMs: -Infinity };
    const replacing = { ...now, stagingDir: paths.staging, crashPoint: noCrashPoint };
    await applyDueReplacements(table, replacing);
    await showMergedFolders(table, replacing);
    await table.commit(() => ({ cause: 'restore', actions: [], restoredFrom: madeAt, metrics: { backupOf: madeAt } }));
    await writeCheckpoint(duckdb, paths.table, copyTableState(table.state()), noCrashPoint);
  } finally {
    lock.release();
  }
}

/** Completes a restored lake. Errors: those of the compactor, of `applyDueReplacements` and of `openTable`. */
export async function completeRestore(
  dependencies: CompleteRestoreDependencies,
  backlog: StreamReader | undefined,
  madeAt: string,
  options: CompleteRestoreOptions,
): Promise<void> {
  const { clock } = dependencies;
  const { lakeDir, retentionMs } = options;
  await ensureLake(lakeDir, { clock, retentionMs });
  if (backlog !== undefined) await takeIn(backlog, dependencies, options);
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1, tempDir: path.join(options.spoolDir, 'restore') });
  try {
    for (const dataset of await listTables(lakeDir)) await settleTable(duckdb, dataset, clock, madeAt, options);
  } finally {
    duckdb.close();
    await removeTree(options.spoolDir);
  }
}
