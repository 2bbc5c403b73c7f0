import { createKeyedMutex } from '../async/mutex.ts';
import { ensureFolder } from './durable-file.ts';
import { waitForLock } from './lock.ts';

const turns = createKeyedMutex();
const lockWaitMs = 10_000;

/**
 * Makes one change of a folder at a time, whichever process makes it; creates the folder. Those of this process take turns
 * in the order in which they were asked for: a lock is asked for again and again, by a process that is waited for, and of
 * many who ask for it at once some would never get it. Error: `locked`, after ten seconds of another process.
 */
export async function inFolderTurn<T>(folder: string, holder: string, change: () => Promise<T>): Promise<T> {
  return await turns.run(folder, async () => {
    await ensureFolder(folder);
    const lock = await waitForLock(folder, holder, lockWaitMs);
    try {
      return await change();
    } finally {
      lock.release();
    }
  });
}
