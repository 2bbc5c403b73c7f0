import { describeError, isAppError } from '../../runtime/errors.ts';
import { acquireLock } from '../../runtime/files/lock.ts';
import { recoverIntents } from '../../lake/files/staged-rewrite.ts';
import type { TableDependencies } from './maintenance-options.ts';

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
  const { table, paths, crashPoint, logger, assertFolder } = dependencies;
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
    const finished = await recoverIntents(table, paths.staging, crashPoint);
    if (finished > 0) logger.warn({ finished }, 'finished rewrites that were interrupted');
    return await task();
  } finally {
    lock.release();
  }
}
