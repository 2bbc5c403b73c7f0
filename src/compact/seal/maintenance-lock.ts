import { describeError, isAppError } from '../../runtime/errors.ts';
import { acquireLock } from '../../runtime/files/lock.ts';
import { recoverIntents } from '../../lake/files/staged-rewrite.ts';
import type { MaintenanceDependencies } from './maintenance-options.ts';

/**
 * Runs a task that rewrites files under the maintenance lock, after finishing what a crash left half-done; undefined
 * when another (an erasure, a replay) holds the lock.
 */
export async function underMaintenanceLock<T>(
  dependencies: MaintenanceDependencies,
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
    const finished = await recoverIntents(table, paths.staging, crashPoint);
    if (finished > 0) logger.warn({ finished }, 'finished rewrites that were interrupted');
    return await task();
  } finally {
    lock.release();
  }
}
