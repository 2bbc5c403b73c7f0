import type { Clock } from '../../runtime/clock.ts';
import { describeError, isTransient, isAppError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import { createTrouble } from '../compact-status.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import type { lakePaths } from '../../lake/lake.ts';
import type { Table } from '../../lake/log/table.ts';
import type { CompactMetrics } from '../compact-metrics.ts';
import { acquireLock } from '../../runtime/files/lock.ts';
import { recoverChanges } from '../../lake/files/change.ts';
import { openDuckdb, type Duckdb, type DuckdbOptions } from '../../lake/sql/duckdb.ts';

/**
 * One task of the maintenance loop. Its failure is a problem that is tried again; it keeps neither the other tasks nor the
 * flushes from their work.
 */
export interface MaintenanceTask {
  /** Runs the work, unless it failed and its next try is not due. Returns what the work has thrown. */
  run(work: () => Promise<void>): Promise<unknown>;
  problems(): Problem[];
}

const firstWaitMs = 500;
const longestWaitMs = 60_000;

/** What passes by itself is tried twice a second; anything else ever less often: it may cost minutes each time. */
function waitAfter(error: unknown, tries: number): number {
  return isTransient(error) ? firstWaitMs : Math.min(longestWaitMs, firstWaitMs * 2 ** (tries - 1));
}

/** Creates a task; `what` says what does not happen while it fails, for the operator. */
export function createMaintenanceTask(
  what: string,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
): MaintenanceTask {
  const trouble = createTrouble(clock);
  let tries = 0;
  let logged = '';
  let retryAtMs = 0;
  return {
    async run(work) {
      if (performance.now() < retryAtMs) return undefined;
      try {
        await work();
        trouble.clear();
        [tries, retryAtMs] = [0, 0];
        return undefined;
      } catch (error) {
        tries += 1;
        retryAtMs = performance.now() + waitAfter(error, tries);
        trouble.note(error);
        const text = describeError(error);
        // Once for each cause: it is tried again and again.
        logger[tries === 1 || text !== logged ? 'warn' : 'debug'](
          { error: text, what, tries },
          'maintenance failed, will retry',
        );
        logged = text;
        return error;
      }
    },
    problems() {
      const found = trouble.find();
      if (found === undefined) return [];
      return [
        {
          code: 'maintenance_failing',
          subject: what,
          what: `${what} since ${found.since}: ${found.error}`,
          todo: 'Remove the cause, such as a full disk: it then goes on by itself. Import, exports and SQL work meanwhile.',
          since: found.since,
        },
      ];
    },
  };
}

/** What the maintenance of the lake works with. */
export interface MaintenanceDependencies {
  /** The table of the imported events: its log says whose the lake is. */
  readonly leader: Table;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly logger: Logger;
  readonly counted: CompactMetrics;
  readonly lakeDir: string;
  readonly writer: string;
  /**
   * Throws when the lake's folder is not the one that this compactor has locked any more: what lies there belongs to
   * somebody else.
   */
  readonly assertFolder: () => void;
}

/** What the maintenance of one table works with. */
export interface TableDependencies extends MaintenanceDependencies {
  readonly dataset: Dataset;
  /** That of the events is the leader itself. */
  readonly table: Table;
  /** The table's own places, and those of the lake. */
  readonly paths: ReturnType<typeof lakePaths>;
}

export interface MaintenanceOptions {
  readonly spoolDir: string;
  readonly sealAgeMs: number;
  readonly sealMaxBytes: number;
  readonly retentionMs: number;
  readonly duckdbMemoryMb: number;
  /** Commits from one checkpoint to the next; 100 by default. */
  readonly checkpointEvery?: number;
}

/** Takes in who owns the lake; where another engine has changed the events, what was known last stands. */
async function refreshOwner({ table, leader }: TableDependencies): Promise<void> {
  if (table === leader) return;
  await leader.refresh().catch((error: unknown) => {
    if (!isAppError(error, 'foreign_commit')) throw error;
  });
}

/**
 * Runs a task that rewrites files under the table's maintenance lock, after finishing what a crash left half-done;
 * undefined when another (an erasure, a replay, a load) holds the lock.
 */
export async function underMaintenanceLock<T>(
  dependencies: TableDependencies,
  task: () => Promise<T>,
): Promise<T | undefined> {
  const { table, paths, logger, assertFolder } = dependencies;
  assertFolder();
  let lock;
  try {
    lock = acquireLock(paths.maintenanceLock, 'the compactor', (error) =>
      logger.warn({ error: describeError(error) }, 'the holder of the maintenance lock cannot be written down'),
    );
  } catch (error) {
    if (isAppError(error, 'locked')) return undefined;
    throw error;
  }
  try {
    await table.refresh();
    await refreshOwner(dependencies);
    const finished = await recoverChanges(table, paths.staging);
    if (finished > 0) logger.warn({ finished }, 'completed changes that were interrupted');
    return await task();
  } finally {
    lock.release();
  }
}

/** An engine that can be replaced: an internal error spoils one for good. */
export interface ReplaceableEngine {
  get(): Duckdb;
  /** Opens another in its place; where that fails, it stays. */
  replace(): Promise<void>;
}

/** Opens one. Errors: those of `openDuckdb`. */
export async function openReplaceable(options: DuckdbOptions): Promise<ReplaceableEngine> {
  let duckdb = await openDuckdb(options);
  return {
    get: () => duckdb,
    async replace() {
      const fresh = await openDuckdb(options).catch(() => undefined);
      if (fresh === undefined) return;
      duckdb.close();
      duckdb = fresh;
    },
  };
}
