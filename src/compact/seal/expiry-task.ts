import { events } from '../../datasets/dataset.ts';
import { createExpiredTest } from '../../lake/expiry/age-rules.ts';
import { expireSome, listDue, type Settled } from '../../lake/expiry/expire-files.ts';
import { removeFailed } from '../../lake/remove-failed.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import type { AgeLimits } from './age-limits.ts';
import { withMaintenanceLock, type MaintenanceOptions, type TableDependencies } from './maintenance-task.ts';

/** Work of one run, ms. The table idles as long afterwards, so that removals take half a core. */
const budgetMs = 5000;
/** Longest time between two searches for expired rows, ms. */
const maxSearchMs = 30_000;

type FoundLimits = NonNullable<ReturnType<AgeLimits['find']>>;

/** Creates the runs that remove the expired rows of a table, a few files per commit. */
export function createExpiryTask(
  dependencies: TableDependencies,
  { sealAgeMs }: Pick<MaintenanceOptions, 'sealAgeMs'>,
) {
  const { dataset, table, lakeDir, clock, crashPoint, paths, logger, ageLimits } = dependencies;
  const searchEveryMs = Math.max(50, Math.min(sealAgeMs / 10, maxSearchMs));
  let settled: Settled = new Set();
  let settledKey = '';
  /** Version and limits without expired rows. */
  let done = '';
  /** Limits that failed events have been compared with. */
  let failedKey = '';
  let nextMs = 0;

  const holds = async ({ key }: FoundLimits): Promise<boolean> => (await ageLimits?.holds(dataset, key)) === true;

  /** Removes some rows by one commit, or reads some files. False if there is nothing to do now. */
  async function step(duckdb: Duckdb, found: FoundLimits): Promise<boolean> {
    const work = { dataset, table, stagingDir: paths.staging, duckdb, clock, crashPoint };
    const now = `${table.state().version} ${found.key}`;
    const result = await withMaintenanceLock(dependencies, async () => ({
      // A limit may have been raised meanwhile: the next run reads it.
      removed: (await holds(found)) ? await expireSome(work, found.cutoffs, settled) : ('wait' as const),
    }));
    // Another process holds the lock.
    if (result === undefined || result.removed === 'wait') return false;
    const { removed } = result;
    if (removed === 'continue') return true;
    if (removed === undefined) {
      done = now;
      return false;
    }
    ageLimits?.note(removed);
    logger.info({ table: dataset.table, day: found.cutoffs.day, ...removed }, 'expired rows removed');
    return true;
  }

  /** Removes expired failed events, once a day. */
  async function expireFailed(found: FoundLimits): Promise<void> {
    const { cutoffs, key } = found;
    if (dataset !== events || failedKey === key || table.lake().totals.failed === 0) return;
    const removed = await withMaintenanceLock(dependencies, async () =>
      (await holds(found))
        ? removeFailed({ dataset, table, lakeDir, crashPoint }, 'expire', createExpiredTest(cutoffs))
        : undefined,
    );
    if (removed === undefined) return;
    failedKey = key;
    if (removed > 0) logger.info({ removed, day: cutoffs.day }, 'expired failed events removed');
  }

  return {
    /** Removes expired rows for a while. Errors: the engine's, `file_damaged`, `disk`. */
    async run(duckdb: Duckdb, signal: AbortSignal): Promise<void> {
      const found = ageLimits?.find(dataset);
      if (found === undefined || performance.now() < nextMs) return;
      if (found.key !== settledKey) [settled, settledKey] = [new Set(), found.key];
      await expireFailed(found);
      if (done === `${table.state().version} ${found.key}`) return;
      const begunMs = performance.now();
      const isDue = (): boolean => listDue(table.snapshot().files, found.cutoffs, settled).length > 0;
      let isMore = isDue();
      while (isMore && !signal.aborted && performance.now() < begunMs + budgetMs)
        isMore = (await step(duckdb, found)) && isDue();
      const idleMs = isMore ? 0 : searchEveryMs;
      nextMs = performance.now() + Math.max(idleMs, performance.now() - begunMs);
    },
  };
}
