/**
 * The end of a restore: makes a lake that was copied out of a backup ready for a service.
 *
 * In: the lake at the version of the backup; the tail of the stream that it had not taken in, as a stream. Out: the
 * same lake with the tail in it, taken in by the compactor itself, so by the same rules; sealed files in their places,
 * for nobody reads an older version here; a commit that says which backup it is of.
 * Crash: the restore is begun anew.
 */
import path from 'node:path';
import { renewPlaces } from '../lake/files/places.ts';
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
import type { Problem } from '../runtime/conditions/problem.ts';
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

/** The bounds of a flush and the places, as the service has them. */
type CompleteRestoreOptions = Pick<
  CompactOptions,
  'lakeDir' | 'spoolDir' | 'flushMaxBytes' | 'flushMaxRows' | 'sealMaxBytes' | 'retentionMs' | 'duckdbMemoryMb'
>;

const lookEveryMs = 50;
/** Nothing more comes: a batch need not wait. */
const flushAgeMs = 100;
/** A flush that fails for so long, as on a full disk, ends the restore, milliseconds. */
const stuckMs = 60_000;
const lockWaitMs = 10_000;

/** Takes the tail into the lake. Errors: those of the compactor, `disk` when it does not get on. */
async function takeIn(
  tail: StreamReader,
  { clock, logger, signal }: CompleteRestoreDependencies,
  options: CompleteRestoreOptions,
): Promise<void> {
  const { lastSequence } = await tail.state();
  const progress = { sequence: 0 };
  // What is purged has been committed.
  const reader: StreamReader = { ...tail, purgeBelow: async (sequence) => void (progress.sequence = sequence) };
  const compact = await startCompact(
    { reader, clock, metrics: createMetrics(), logger },
    { ...options, flushAgeMs, sealAgeMs: Number.MAX_SAFE_INTEGER },
  );
  let failure: unknown;
  compact.failed.catch((error: unknown) => void (failure = error));
  try {
    let movedMs = performance.now();
    while (progress.sequence < lastSequence) {
      const before = progress.sequence;
      await pause(lookEveryMs, signal);
      if (signal.aborted)
        throw new AppError('stopping', 'the restore was stopped', { hint: 'Run it again: it begins anew.' });
      if (failure !== undefined) throw failure;
      if (progress.sequence > before) movedMs = performance.now();
      const [problem] = compact.facts()['problems'] as readonly Problem[];
      if (problem !== undefined && performance.now() - movedMs > stuckMs)
        throw new AppError('disk', problem.what, {
          retryable: false,
          hint: 'Remove the cause, and run the restore again: it begins anew.',
        });
    }
  } finally {
    await compact.stop();
  }
}

/**
 * Completes the restored lake; a folder without one stays without. Errors: those of the compactor, of `renewPlaces` and of
 * `openTable`.
 */
export async function completeRestore(
  dependencies: CompleteRestoreDependencies,
  tail: StreamReader | undefined,
  madeAt: string,
  options: CompleteRestoreOptions,
): Promise<void> {
  const { clock } = dependencies;
  const { lakeDir, retentionMs } = options;
  await ensureLake(lakeDir, { clock, retentionMs });
  if (tail !== undefined) await takeIn(tail, dependencies, options);
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1, tempDir: path.join(options.spoolDir, 'restore') });
  try {
    for (const dataset of await listTables(lakeDir)) await settleTable(duckdb, dataset, clock, madeAt, options);
  } finally {
    duckdb.close();
    await removeTree(options.spoolDir);
  }
}

/** Shows the sealed files of a table at their places, and commits which backup it is of. */
async function settleTable(
  duckdb: Duckdb,
  dataset: Dataset,
  clock: Clock,
  madeAt: string,
  { lakeDir, retentionMs }: CompleteRestoreOptions,
): Promise<void> {
  const paths = tablePaths(lakeDir, dataset);
  // The folders that a backup does not have, since they were empty, are made with it.
  const table = await openDatasetTable(lakeDir, dataset, { clock, crashPoint: noCrashPoint, retentionMs });
  const lock = await waitForLock(paths.maintenanceLock, 'a restore', lockWaitMs);
  try {
    await table.refresh();
    await renewPlaces(table, {
      nowMs: clock.nowMs(),
      retentionMs: -Infinity,
      stagingDir: paths.staging,
      crashPoint: noCrashPoint,
    });
    await table.commit(() => ({ cause: 'restore', actions: [], restoredFrom: madeAt, metrics: { backupOf: madeAt } }));
    await writeCheckpoint(duckdb, paths.table, copyTableState(table.state()), noCrashPoint);
  } finally {
    lock.release();
  }
}
