import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { isTableName } from '../../datasets/pipeline-file.ts';
import { retry } from '../../runtime/async/retry.ts';
import { isAppError, isSystemError } from '../../runtime/errors.ts';
import { ensureFolder } from '../../runtime/files/durable-file.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { acquireLock, isLocked, type Lock } from '../../runtime/files/lock.ts';
import { makeFolder } from '../../runtime/files/make-folder.ts';
import { removeTree } from '../../runtime/files/work-files.ts';

/**
 * The staging folder of a table: work in hand, a folder for each. A folder is locked while its process lives; what
 * nobody has locked is left over, and whoever takes the table's maintenance lock next settles or removes it.
 */

/** A locked, private folder for one piece of work. */
export interface StagingFolder {
  readonly id: string;
  readonly folder: string;
  /** Removes the folder unless `keeps`, and releases the lock. */
  close(keeps?: boolean): Promise<void>;
}

const loadPrefix = 'load-';
/** Attempts to create a folder: a recovery may lock a new one first. */
const maxOpenings = 100;
const lockWaitMs = 120_000;

/** Reports whether another process locked or removed the folder. */
const isHeld = (error: unknown): boolean => isAppError(error, 'locked') || isSystemError(error, 'ENOENT');

function toStagingFolder(id: string, folder: string, lock: Lock): StagingFolder {
  return {
    id,
    folder,
    async close(keeps = false) {
      try {
        if (!keeps) await removeTree(folder);
      } finally {
        lock.release();
      }
    },
  };
}

/** Creates a folder in the staging folder of a table. `isLoad`: the work holds no lock of the table. */
export async function openStagingFolder(stagingDir: string, holder: string, isLoad = false): Promise<StagingFolder> {
  await ensureFolder(stagingDir);
  for (let opening = 1; ; opening += 1) {
    const id = randomUUID();
    const folder = path.join(stagingDir, `${isLoad ? loadPrefix : ''}${id}`);
    try {
      await makeFolder(folder);
      return toStagingFolder(id, folder, acquireLock(folder, holder));
    } catch (error) {
      if (opening === maxOpenings || !isHeld(error)) throw error;
    }
  }
}

/**
 * Serializes the commits of loads of an id, whose failed rows are written before the commit. Waits up to two minutes;
 * `assertGoesOn` throws if the load must end. Errors: `locked`, those of `assertGoesOn`.
 */
export async function lockLoad(stagingDir: string, loadId: string, assertGoesOn: () => void): Promise<StagingFolder> {
  const folder = path.join(stagingDir, `${loadPrefix}${loadId}`);
  const attempt = async (): Promise<Lock> => {
    assertGoesOn();
    await makeFolder(folder);
    return acquireLock(folder, 'a load of the same file');
  };
  return toStagingFolder(loadId, folder, await retry(attempt, { forMs: lockWaitMs, everyMs: 100, retryable: isHeld }));
}

/** Lists the work in progress of a table. The staging folder of the events also has those of the other tables. */
export async function listStaged(stagingDir: string): Promise<string[]> {
  return (await findNames(stagingDir)).filter((name) => !isTableName(name));
}

/** Reports whether any load into a table is running. */
export async function hasRunningLoad(stagingDir: string): Promise<boolean> {
  const names = await listStaged(stagingDir);
  return names.some((name) => name.startsWith(loadPrefix) && isLocked(path.join(stagingDir, name)));
}

/** Creates a test of whether a file, by its path, belongs to work in progress. */
export async function findNamesInHand(stagingDir: string): Promise<(file: string) => boolean> {
  const ids = (await listStaged(stagingDir)).map((name) => name.replace(loadPrefix, ''));
  return (file) => ids.some((id) => path.basename(file).startsWith(`${id}-`) || file.includes(`.${id}-`));
}

/** Locks each folder that is not locked, and removes it after `settle`. */
export async function forEachLeftOver(stagingDir: string, settle: (folder: string) => Promise<void>): Promise<void> {
  for (const name of await listStaged(stagingDir)) {
    const folder = path.join(stagingDir, name);
    let lock: Lock;
    try {
      lock = acquireLock(folder, 'a recovery');
    } catch (error) {
      if (isHeld(error)) continue;
      throw error;
    }
    try {
      await settle(folder);
      await removeTree(folder);
    } finally {
      lock.release();
    }
  }
}
