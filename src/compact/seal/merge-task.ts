import { describeError, isAppError, isDamage, type AppError } from '../../runtime/errors.ts';
import { findExchangeFault } from '../../runtime/files/exchange-folders.ts';
import { readFreeBytes } from '../../runtime/files/disk-watch.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import type { Dataset } from '../../datasets/dataset.ts';
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

interface Day {
  readonly folder: string;
  readonly inputs: readonly DataFile[];
}

/** Finds the oldest day that has ended and has files to merge, all of which readers of folders see. */
async function findDay(
  { table, clock }: TableDependencies,
  afterMs: number,
  failures: ReadonlyMap<string, string>,
): Promise<Day | undefined> {
  const days = [...groupByFolder(table.snapshot().files)]
    .map(([folder, files]) => ({ folder, files, date: parsePartitionPath(`${folder}/`)?.['date'] }))
    .filter(({ folder, date }) => !failures.has(folder) && isDayOver(date, clock.nowMs(), afterMs))
    .toSorted((a, b) => (`${a.date} ${a.folder}` < `${b.date} ${b.folder}` ? -1 : 1));
  for (const { folder, files } of days) {
    const inputs = chooseInputs(files);
    if (inputs.length > 0 && (await listDeferredReplacements(table.dir, files)).length === 0) return { folder, inputs };
  }
  return undefined;
}

/** Creates the check, once, of whether the folders of a table can be exchanged. A table in a bucket has none. */
function createExchangeCheck({ table, paths, logger }: TableDependencies) {
  let isChecked = false;
  let fault: AppError | undefined;
  return {
    async isSupported(): Promise<boolean> {
      if (!isChecked && tableStore(table.dir).folder !== undefined) {
        fault = await findExchangeFault(formerFolder(paths.staging));
        if (fault !== undefined) logger.warn({ error: describeError(fault) }, 'days are not merged');
      }
      isChecked = true;
      return fault === undefined;
    },
    fault: () => fault,
  };
}

type ExchangeCheck = ReturnType<typeof createExchangeCheck>;

function describePause(dataset: Dataset, reason: string): Problem {
  return {
    code: 'merge_paused',
    subject: dataset.table,
    message: `days of ${describeTable(dataset)} are not merged: ${reason}`,
    action:
      "Free space on a full disk. Otherwise remove the cause that the message names, then restart the service. For a damaged file, run 'tributary lake check' first.",
  };
}

/** Merges days in steps. A day that fails is left until the next start. */
function createMerges(dependencies: TableDependencies, fileBytes: number, exchange: ExchangeCheck) {
  const { dataset, table, clock, crashPoint, paths, logger, counted } = dependencies;
  const failures = new Map<string, string>();
  let current: { readonly day: DayMerge; readonly duckdb: Duckdb } | undefined;
  let isCrowded = false;

  async function close(): Promise<void> {
    const closing = current;
    current = undefined;
    await closing?.day.close();
  }

  /** Writes the next file of a day, or commits it. False if the maintenance lock is held. */
  async function step(day: DayMerge): Promise<boolean> {
    if (await day.step()) return true;
    const merged = await withMaintenanceLock(dependencies, () => day.commit());
    if (merged === undefined) return false;
    await close();
    counted.merged(merged);
    logger.info({ table: dataset.table, ...merged }, 'day merged');
    return true;
  }

  /** Settles the failure of a day. Throws it unless it is damage: the engine may have failed. */
  async function fail({ folder, inputs }: Day, error: unknown): Promise<void> {
    await table.refresh();
    const live = new Set(table.snapshot().files.map((file) => file.path));
    if (inputs.some((file) => !live.has(file.path))) return;
    if (!isOfDay(error)) throw error;
    failures.set(folder, describeError(error));
    logger.warn({ table: dataset.table, folder, error: describeError(error) }, 'cannot merge day');
    if (!isDamage(error)) throw error;
  }

  return {
    /** Runs a step of the current day, or of the oldest one. False if there is nothing to do now. */
    async step(duckdb: Duckdb, signal: AbortSignal, afterMs: number): Promise<boolean> {
      // A failed engine was replaced.
      if (current?.duckdb !== duckdb) await close();
      const day: Day | undefined = current?.day ?? (await findDay(dependencies, afterMs, failures));
      if (day === undefined || !(await exchange.isSupported())) return false;
      isCrowded = current === undefined && (await readFreeBytes(paths.staging)) < reserveBytes + sumBytes(day.inputs);
      if (isCrowded) return false;
      try {
        const work = { dataset, table, duckdb, clock, crashPoint, stagingDir: paths.staging, fileBytes };
        current ??= { day: await openDayMerge(work, day.folder, day.inputs), duckdb };
        return await step(current.day);
      } catch (error) {
        await close();
        if (!signal.aborted) await fail(day, error);
        return true;
      }
    },
    isRunning: () => current !== undefined,
    close,
    findReason(): string | undefined {
      for (const [folder, failure] of failures)
        return `${failures.size} of them cannot be merged, such as ${folder}: ${failure}`;
      return isCrowded ? 'too little space is free on the disk of the data folder' : undefined;
    },
  };
}

/**
 * Creates the runs that merge the sealed files of days that have ended, one day after the other, oldest first. Other
 * processes may change the table between the runs: the commit then fails, and the day is chosen again.
 */
export function createMergeTask(
  dependencies: TableDependencies,
  { mergeAfterMs, mergeFileBytes = defaultFileBytes, sealAgeMs }: MaintenanceOptions,
) {
  const searchEveryMs = Math.max(50, Math.min(sealAgeMs / 10, maxSearchMs));
  const exchange = createExchangeCheck(dependencies);
  const merges = createMerges(dependencies, mergeFileBytes, exchange);
  let nextMs = 0;

  async function work(duckdb: Duckdb, signal: AbortSignal, afterMs: number): Promise<void> {
    const endMs = performance.now() + budgetMs;
    while (!signal.aborted && performance.now() < endMs) if (!(await merges.step(duckdb, signal, afterMs))) return;
  }

  return {
    /** Merges days for a while. Errors: the engine's, `disk`. */
    async run(duckdb: Duckdb, signal: AbortSignal): Promise<void> {
      if (mergeAfterMs === undefined || performance.now() < nextMs) return;
      const begunMs = performance.now();
      await work(duckdb, signal, mergeAfterMs);
      const idleMs = merges.isRunning() ? 0 : searchEveryMs;
      nextMs = performance.now() + Math.max(idleMs, performance.now() - begunMs);
    },
    /** Drops the files of a day that is not committed. */
    close: () => merges.close(),
    notices(): Problem[] {
      const fault = exchange.fault();
      const reason = fault === undefined ? merges.findReason() : describeError(fault);
      return reason === undefined ? [] : [describePause(dependencies.dataset, reason)];
    },
  };
}
