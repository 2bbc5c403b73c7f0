import { describeError, isAppError, isDamage, type AppError } from '../../runtime/errors.ts';
import { findExchangeFault } from '../../runtime/files/exchange-folders.ts';
import { readFreeBytes } from '../../runtime/files/disk-watch.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import { parsePartitionPath } from '../../datasets/partition.ts';
import { listDeferredReplacements } from '../../lake/files/deferred-replacement.ts';
import { groupByFolder } from '../../lake/files/merged-folders.ts';
import { formerFolder } from '../../lake/files/staging.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import { tableStore } from '../../lake/log/log-files.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { withMaintenanceLock, type MaintenanceOptions, type TableDependencies } from './maintenance-task.ts';
import { openDayMerge, type DayMerge } from './merge-day.ts';
import { chooseInputs, isDayOver } from './merge-policy.ts';
import { describeTable, sumBytes } from './seal-task.ts';

/** Work of one run, ms: seals wait meanwhile. The table idles as long afterwards, so that a merge takes half a core. */
const budgetMs = 5000;
/** Longest time between two searches for days, ms. */
const maxSearchMs = 30_000;
/** Free space on the lake's disk below which no merge begins, besides its files, bytes. */
const reserveBytes = 1024 ** 3;

const defaultFileBytes = 128 * 1024 ** 2;

/** Reports whether a merge failed because of its day, and not because of the machine. */
const isOfDay = (error: unknown): error is AppError =>
  isDamage(error) || isAppError(error, 'memory') || isAppError(error, 'sql');

/**
 * Creates the runs that merge the sealed files of days that are over, one day after the other, oldest first. A day that
 * fails is left until the next start. Other processes may change the table between the runs: the commit then fails, and
 * the day is chosen again.
 */
export function createMergeTask(
  dependencies: TableDependencies,
  { mergeAfterMs, mergeFileBytes = defaultFileBytes, sealAgeMs }: MaintenanceOptions,
) {
  const { dataset, table, clock, crashPoint, paths, logger, counted } = dependencies;
  const searchEveryMs = Math.max(50, Math.min(sealAgeMs / 10, maxSearchMs));
  const failures = new Map<string, string>();
  let current: DayMerge | undefined;
  let nextMs = 0;
  /** Undefined until it was checked whether folders can be exchanged. */
  let fault: AppError | 'none' | undefined;
  let isCrowded = false;

  async function close(): Promise<void> {
    const closing = current;
    current = undefined;
    await closing?.close();
  }

  /** Finds the oldest day that is over and has files to merge, all of which readers of folders see. */
  async function findDay(afterMs: number): Promise<{ folder: string; inputs: DataFile[] } | undefined> {
    const days = [...groupByFolder(table.snapshot().files)]
      .map(([folder, files]) => ({ folder, files, date: parsePartitionPath(`${folder}/`)?.['date'] }))
      .filter(({ folder, date }) => !failures.has(folder) && isDayOver(date, clock.nowMs(), afterMs))
      .toSorted((a, b) => (`${a.date} ${a.folder}` < `${b.date} ${b.folder}` ? -1 : 1));
    for (const { folder, files } of days) {
      const inputs = chooseInputs(files);
      if (inputs.length > 0 && (await listDeferredReplacements(table.dir, files)).length === 0)
        return { folder, inputs };
    }
    return undefined;
  }

  /** Writes the next file of the current day, or commits it. False if the maintenance lock is held. */
  async function step(merge: DayMerge): Promise<boolean> {
    if (await merge.step()) return true;
    const merged = await withMaintenanceLock(dependencies, () => merge.commit());
    if (merged === undefined) return false;
    await close();
    counted.merged(merged);
    logger.info({ table: dataset.table, ...merged }, 'day merged');
    return true;
  }

  /** Settles the failure of a day. Throws the error if other days may fail too. */
  async function fail(folder: string, inputs: readonly DataFile[], error: unknown): Promise<void> {
    await table.refresh();
    const live = new Set(table.snapshot().files.map((file) => file.path));
    if (inputs.some((file) => !live.has(file.path))) return;
    if (!isOfDay(error)) throw error;
    failures.set(folder, describeError(error));
    logger.warn({ table: dataset.table, folder, error: describeError(error) }, 'cannot merge day');
  }

  /** Merges days for a while. */
  async function merge(duckdb: Duckdb, signal: AbortSignal, afterMs: number): Promise<void> {
    const work = { dataset, table, duckdb, clock, crashPoint, stagingDir: paths.staging, fileBytes: mergeFileBytes };
    const endMs = performance.now() + budgetMs;
    while (!signal.aborted && performance.now() < endMs) {
      const day = current ?? (await findDay(afterMs));
      if (day === undefined) return;
      isCrowded = current === undefined && (await readFreeBytes(paths.staging)) < reserveBytes + sumBytes(day.inputs);
      if (isCrowded) return;
      try {
        current ??= await openDayMerge(work, day.folder, day.inputs);
        if (!(await step(current))) return;
      } catch (error) {
        await close();
        if (!signal.aborted) await fail(day.folder, day.inputs, error);
      }
    }
  }

  async function isSupported(): Promise<boolean> {
    if (fault === undefined && tableStore(table.dir).folder !== undefined) {
      fault = await findExchangeFault(formerFolder(paths.staging));
      if (fault !== undefined) logger.warn({ error: describeError(fault) }, 'days are not merged');
    }
    fault ??= 'none';
    return fault === 'none';
  }

  function findReason(): string | undefined {
    if (fault !== undefined && fault !== 'none') return describeError(fault);
    for (const [folder, failure] of failures)
      return `${failures.size} of them cannot be merged, such as ${folder}: ${failure}`;
    return isCrowded ? 'too little space is free on the disk of the data folder' : undefined;
  }

  return {
    /** Merges days for a while. Errors: the engine's, `disk`. */
    async run(duckdb: Duckdb, signal: AbortSignal): Promise<void> {
      if (mergeAfterMs === undefined || performance.now() < nextMs) return;
      const begunMs = performance.now();
      if (await isSupported()) await merge(duckdb, signal, mergeAfterMs);
      const idleMs = current === undefined ? searchEveryMs : 0;
      nextMs = performance.now() + Math.max(idleMs, performance.now() - begunMs);
    },
    /** Drops the files of a day that is not committed. */
    close,
    notices(): Problem[] {
      const reason = findReason();
      if (reason === undefined) return [];
      return [
        {
          code: 'merge_paused',
          subject: dataset.table,
          message: `days of ${describeTable(dataset)} are not merged: ${reason}`,
          action:
            "Remove the cause that the message names, then restart the service. For a damaged file, run 'tributary lake check' first.",
        },
      ];
    },
  };
}
