import path from 'node:path';
import { retry } from '../../runtime/async/retry.ts';
import { isAppError, isSystemError } from '../../runtime/errors.ts';
import { acquireLock, type Lock } from '../../runtime/files/lock.ts';
import { removeTree } from '../../runtime/files/work-files.ts';
import type { Table } from '../log/table.ts';
import { loadFolder } from '../log/young-folder.ts';

const lockWaitMs = 120_000;
const retryEveryMs = 100;

/** Says whether another has the lock, or is removing the folder of it at the moment. */
const isHeld = (error: unknown): boolean => isAppError(error, 'locked') || isSystemError(error, 'ENOENT');

/** A lock that goes with its folder. */
export interface LoadLock {
  release(): Promise<void>;
}

/**
 * Lets one load of an id commit at a time: its failed rows are in a file named after the id, before its commit is. The
 * lock is on a folder beside those of the loads' files: what a kill leaves of it goes with theirs. Waits up to two
 * minutes; `assertGoesOn` throws when the load is to end. Errors: `locked`, those of `assertGoesOn`.
 */
export async function lockLoad(table: Table, loadId: string, assertGoesOn: () => void): Promise<LoadLock> {
  const dir = path.join(table.dir, loadFolder, `.id-${loadId}`);
  const attempt = async (): Promise<Lock> => {
    assertGoesOn();
    return acquireLock(dir, 'a load of the same file');
  };
  const lock = await retry(attempt, { forMs: lockWaitMs, everyMs: retryEveryMs, retryable: isHeld });
  return {
    async release() {
      try {
        await removeTree(dir);
      } finally {
        lock.release();
      }
    },
  };
}
