import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { ensureFolder } from './durable-file.ts';
import { findNames } from './folder-names.ts';
import { acquireLock, isLocked, waitForLock, type Lock } from './lock.ts';
import { removeTree } from './work-files.ts';

/** A folder for the work of one command, which is gone with the command. */
export interface WorkRoom {
  /** Absolute path of the folder, which is for the owner alone. */
  readonly dir: string;
  close(): Promise<void>;
}

const lockWaitMs = 10_000;

/** Removes the rooms that no process has open: those of commands that were killed. */
async function removeLeft(parent: string): Promise<void> {
  for (const name of await findNames(parent)) {
    const room = path.join(parent, name);
    if (!name.startsWith('.') && !isLocked(room)) await removeTree(room);
  }
}

/** Removes what killed commands have left below `parent`, a folder of rooms; one that is not there has none. */
export async function clearWorkRooms(parent: string, holder: string): Promise<void> {
  if ((await findNames(parent)).length === 0) return;
  const one = await waitForLock(parent, holder, lockWaitMs);
  try {
    await removeLeft(parent);
  } finally {
    one.release();
  }
}

/** Makes and locks a room. Rooms are made and removed one at a time, so that none is taken for left before its lock. */
async function makeRoom(parent: string, dir: string, holder: string): Promise<Lock> {
  const one = await waitForLock(parent, holder, lockWaitMs);
  try {
    await removeLeft(parent);
    return acquireLock(dir, holder);
  } finally {
    one.release();
  }
}

/**
 * Opens a room of its own below `parent`, a folder of such rooms alone, and removes what killed commands have left
 * there. Errors: `locked`, the system's.
 */
export async function openWorkRoom(parent: string, holder: string): Promise<WorkRoom> {
  await ensureFolder(parent);
  const dir = path.join(parent, randomUUID());
  const lock = await makeRoom(parent, dir, holder);
  return {
    dir,
    async close() {
      await removeTree(dir);
      lock.release();
    },
  };
}
