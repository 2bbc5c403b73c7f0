import type { Clock } from '../../runtime/clock.ts';
import { describeError, isTransient, isAppError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import { createRetryState } from '../compact-status.ts';
import { assertOwner } from '../lake-owner.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { maintenanceLease, type lakePaths } from '../../lake/lake.ts';
import type { Table } from '../../lake/log/table.ts';
import type { AgeRules } from '../../lake/expiry/age-rules.ts';
import type { AgeLimits } from './age-limits.ts';
import type { CompactMetrics } from '../compact-metrics.ts';
import { tryLockObjects } from '../../runtime/store/object-lock.ts';
import { recoverChanges } from '../../lake/files/change.ts';
import { openDuckdb, type DuckdbOptions } from '../../lake/sql/duckdb.ts';

const firstWaitMs = 500;
const maxWaitMs = 60_000;

/** Returns the delay before the next attempt, ms. Only transient errors are retried twice a second. */
function waitAfter(error: unknown, tries: number): number {
  return isTransient(error) ? firstWaitMs : Math.min(maxWaitMs, firstWaitMs * 2 ** (tries - 1));
}

export type MaintenanceTask = ReturnType<typeof createMaintenanceTask>;

/** Creates a maintenance task. A failure is a problem, and is retried. `what` names the work that is not done. */
export function createMaintenanceTask(
  what: string,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
) {
  const retryState = createRetryState(clock);
  let tries = 0;
  let logged = '';
  let retryAtMs = 0;
  return {
    /** Runs the work, unless it failed and the next attempt is not due. Returns what the work has thrown. */
    async run(work: () => Promise<void>): Promise<unknown> {
      if (performance.now() < retryAtMs) return undefined;
      try {
        await work();
        retryState.clear();
        [tries, retryAtMs] = [0, 0];
        return undefined;
      } catch (error) {
        tries += 1;
        retryAtMs = performance.now() + waitAfter(error, tries);
        retryState.note(error);
        const text = describeError(error);
        const level = tries === 1 || text !== logged ? 'warn' : 'debug';
        logger[level]({ error: text, what, tries }, 'maintenance failed, will retry');
        logged = text;
        return error;
      }
    },
    problems: (): Problem[] =>
      retryState.problems(({ since, error }) => ({
        code: 'maintenance_failing',
        subject: what,
        message: `${what} since ${since}: ${error}`,
        action:
          'Remove the cause that the message names, such as a full disk. Maintenance then resumes; imports, exports and SQL work meanwhile.',
        since,
      })),
  };
}

export interface MaintenanceDependencies {
  /** The table of the imported events, whose log names the owner of the lake. */
  readonly primaryTable: Table;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly logger: Logger;
  readonly counted: CompactMetrics;
  readonly lakeDir: string;
  readonly writer: string;
  readonly assertFolder: () => void;
  /** Absent: rows have no age limit. */
  readonly ageLimits?: AgeLimits | undefined;
}

export interface TableDependencies extends MaintenanceDependencies {
  readonly dataset: Dataset;
  readonly table: Table;
  readonly paths: ReturnType<typeof lakePaths>;
}

export interface MaintenanceOptions {
  readonly spoolDir: string;
  readonly sealAgeMs: number;
  readonly sealMaxBytes: number;
  readonly mergeAfterMs?: number | undefined;
  readonly mergeFileBytes?: number | undefined;
  readonly retentionMs: number;
  readonly memoryMb: number;
  readonly checkpointEvery?: number;
  readonly readAgeRules?: (() => Promise<AgeRules>) | undefined;
}

/** Refreshes a table. A foreign commit leaves the state before it. */
export async function refreshOwnCommits(table: Table): Promise<void> {
  await table.refresh().catch((error: unknown) => {
    if (!isAppError(error, 'foreign_commit')) throw error;
  });
}

/**
 * Runs a task that rewrites files under the table's maintenance lock, after completing what a crash interrupted, unless
 * this compactor has lost the lake (`fenced`); undefined if another process (such as an erasure) holds the lock.
 */
export async function withMaintenanceLock<T>(
  { dataset, table, primaryTable, writer, paths, logger, assertFolder }: TableDependencies,
  task: () => Promise<T>,
): Promise<T | undefined> {
  assertFolder();
  const lock = await tryLockObjects(paths.maintenanceLock, {
    lease: maintenanceLease(dataset),
    holder: 'the compactor',
    onUnnamed: (error) =>
      logger.warn({ error: describeError(error) }, 'cannot record the holder of the maintenance lock'),
  });
  if (lock === undefined) return undefined;
  try {
    await table.refresh();
    if (table !== primaryTable) await refreshOwnCommits(primaryTable);
    const finished = await recoverChanges(table, paths.staging);
    if (finished > 0) logger.warn({ finished }, 'interrupted changes completed');
    assertOwner(primaryTable.lake(), writer);
    return await task();
  } finally {
    await lock.release();
  }
}

export type ReplaceableEngine = Awaited<ReturnType<typeof openReplaceable>>;

/** Opens an engine that can be replaced, since an internal error spoils one. Errors: those of `openDuckdb`. */
export async function openReplaceable(options: DuckdbOptions) {
  let duckdb = await openDuckdb(options);
  return {
    get: () => duckdb,
    async replace(): Promise<void> {
      const fresh = await openDuckdb(options).catch(() => undefined);
      if (fresh === undefined) return;
      duckdb.close();
      duckdb = fresh;
    },
  };
}
