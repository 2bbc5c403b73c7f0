import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { isTableName } from '../../datasets/pipeline-file.ts';
import { retry } from '../../runtime/async/retry.ts';
import { AppError, isAppError, unlessMissing } from '../../runtime/errors.ts';
import { ensureFolder } from '../../runtime/files/durable-file.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { isLocked } from '../../runtime/files/lock.ts';
import { makeFolder } from '../../runtime/files/make-folder.ts';
import { removeTree } from '../../runtime/files/work-files.ts';
import { isLeaseHeld, tryLockObjects, type ObjectLock } from '../../runtime/store/object-lock.ts';
import { openStore } from '../../runtime/store/open-store.ts';

/**
 * Staging has a locked folder per running work. The next holder of the maintenance lock settles unlocked ones. The
 * folder is local; what must survive a crash is an object of the lake with the same path.
 */

export interface StagingFolder {
  readonly id: string;
  readonly folder: string;
  /** Removes the folder unless `keeps`, and releases the lock. */
  close(keeps?: boolean): Promise<void>;
}

const loadPrefix = 'load-';
/** Attempts to create a folder. A recovery may lock a new one first. */
const maxOpenings = 100;
const lockWaitMs = 120_000;

/** Name of the lease of a load. The lease of its table excludes other work. */
const leaseOf = (folder: string): { readonly lease?: string } =>
  path.basename(folder).startsWith(loadPrefix) ? { lease: path.basename(folder) } : {};

/** Marks work as running while this process lives; undefined if another process runs it or removed the folder. */
async function holdWork(folder: string, holder: string): Promise<ObjectLock | undefined> {
  return await unlessMissing(tryLockObjects(folder, { ...leaseOf(folder), holder }), undefined);
}

async function isRunning(folder: string): Promise<boolean> {
  const { lease } = leaseOf(folder);
  return isLocked(folder) || (lease !== undefined && (await isLeaseHeld(folder, lease)));
}

const lockedError = (folder: string): AppError =>
  new AppError('locked', `${folder} is in use by another process`, {
    hint: 'Wait for that one, then repeat the command.',
  });

const isHeldElsewhere = (error: unknown): boolean => isAppError(error, 'locked');

/** Removes the objects of work, and its folder. */
async function removeWork(folder: string): Promise<void> {
  const store = openStore(folder, { isGrowing: true });
  if (store.folder === undefined) await store.remove(await store.list(''));
  await removeTree(folder);
}

function toStagingFolder(id: string, folder: string, lock: ObjectLock): StagingFolder {
  return {
    id,
    folder,
    async close(keeps = false) {
      try {
        if (!keeps) await removeWork(folder);
      } finally {
        await lock.release();
      }
    },
  };
}

/** Creates a folder in a table's staging folder. `isLoad`: it holds no lock of the table. */
export async function openStagingFolder(stagingDir: string, holder: string, isLoad = false): Promise<StagingFolder> {
  await ensureFolder(stagingDir);
  for (let opening = 1; ; opening += 1) {
    const id = randomUUID();
    const folder = path.join(stagingDir, `${isLoad ? loadPrefix : ''}${id}`);
    await makeFolder(folder);
    const lock = await holdWork(folder, holder);
    if (lock !== undefined) return toStagingFolder(id, folder, lock);
    if (opening === maxOpenings) throw lockedError(folder);
  }
}

/** Serializes the commits of loads of an id. Waits up to two minutes. Error: `locked`. */
export async function lockLoad(stagingDir: string, loadId: string, assertGoesOn: () => void): Promise<StagingFolder> {
  const folder = path.join(stagingDir, `${loadPrefix}${loadId}`);
  const attempt = async (): Promise<ObjectLock> => {
    assertGoesOn();
    await makeFolder(folder);
    const lock = await holdWork(folder, 'a load of the same file');
    if (lock === undefined) throw lockedError(folder);
    return lock;
  };
  return toStagingFolder(
    loadId,
    folder,
    await retry(attempt, { forMs: lockWaitMs, everyMs: 100, retryable: isHeldElsewhere }),
  );
}

/** Start of the names of folders that were shown to readers of the glob. The next part is a time, Unix ms. */
const formerPrefix = 'former-';

/** Returns a new path for a folder that is exchanged with one that is shown. */
export function formerFolder(stagingDir: string): string {
  return path.join(stagingDir, `${formerPrefix}${Date.now()}-${randomUUID()}`);
}

/** Removes former folders that are older than `ageMs`. A reader may still list a younger one. */
export async function removeFormerShown(stagingDir: string, ageMs: number): Promise<void> {
  for (const name of await findNames(stagingDir))
    if (name.startsWith(formerPrefix) && Math.abs(Date.now() - Number(name.split('-')[1])) >= ageMs)
      await removeTree(path.join(stagingDir, name));
}

/** Lists the staged work of a table. The events table's folder also has that of other tables. */
export async function listStaged(stagingDir: string): Promise<string[]> {
  const names = [...(await findNames(stagingDir)), ...(await openStore(stagingDir).folders(''))];
  return [...new Set(names)].filter((name) => !isTableName(name) && !name.startsWith(formerPrefix));
}

export async function hasRunningLoad(stagingDir: string): Promise<boolean> {
  for (const name of await listStaged(stagingDir))
    if (name.startsWith(loadPrefix) && (await isRunning(path.join(stagingDir, name)))) return true;
  return false;
}

/** Creates a test of whether a file belongs to work in progress. */
export async function findNamesInProgress(stagingDir: string): Promise<(file: string) => boolean> {
  const ids = (await listStaged(stagingDir)).map((name) => name.replace(loadPrefix, ''));
  return (file) => ids.some((id) => path.basename(file).startsWith(`${id}-`) || file.includes(`.${id}-`));
}

/** Removes each unlocked folder after `settle`. */
export async function forEachLeftover(stagingDir: string, settle: (folder: string) => Promise<void>): Promise<void> {
  for (const name of await listStaged(stagingDir)) {
    const folder = path.join(stagingDir, name);
    const lock = await holdWork(folder, 'a recovery');
    if (lock === undefined) continue;
    try {
      await settle(folder);
      await removeWork(folder);
    } finally {
      await lock.release();
    }
  }
}
