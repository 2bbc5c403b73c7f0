import { randomUUID } from 'node:crypto';
import { mkdir, open, rm, writeFile, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { namingDisk, ensureFolder } from './durable-file.ts';
import { findNames } from './folder-names.ts';
import { acquireLock, isLocked, waitForLock, type Lock } from './lock.ts';

/**
 * Files and folders that only the work under way needs: nothing is fsynced, and what a crash leaves of them is removed
 * by whoever owns the folder next. For the owner alone.
 */

/** Writes a work file, in the place of one of its name. */
export async function writeWorkFile(file: string, data: string | Uint8Array): Promise<void> {
  await namingDisk(file, () => writeFile(file, data, { mode: 0o600 }));
}

/** Makes a work folder. Error: EEXIST. */
export async function makeWorkFolder(folder: string): Promise<void> {
  await mkdir(folder, { mode: 0o700 });
}

/** Removes a folder with all that is in it; one that is not there is already removed. */
export async function removeTree(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
}

/** A work file that grows. */
export interface WorkFile {
  append(bytes: Uint8Array): Promise<void>;
  /** Appends several, without a copy that has them all. */
  appendAll(parts: readonly Uint8Array[]): Promise<void>;
  close(): Promise<void>;
}

/** The system takes no more parts at once (IOV_MAX). */
const maxParts = 1024;

/** Writes parts one after the other: the system may take a part of them at a time. */
async function writeAll(handle: FileHandle, parts: readonly Uint8Array[]): Promise<void> {
  let waiting = parts.filter(({ length }) => length > 0);
  while (waiting.length > 0) {
    let { bytesWritten } = await handle.writev(waiting.slice(0, maxParts));
    const next = waiting.findIndex(({ length }) => {
      if (length > bytesWritten) return true;
      bytesWritten -= length;
      return false;
    });
    const [cut, ...rest] = next === -1 ? [] : waiting.slice(next);
    waiting = cut === undefined ? [] : [cut.subarray(bytesWritten), ...rest];
  }
}

/** Opens an empty work file, in the place of one of its name. */
export async function openWorkFile(file: string): Promise<WorkFile> {
  const handle = await open(file, 'w', 0o600);
  return {
    append: (bytes) => namingDisk(file, () => handle.appendFile(bytes)),
    appendAll: (parts) => namingDisk(file, () => writeAll(handle, parts)),
    close: () => handle.close(),
  };
}

/** The folder of the paths by which a process reaches its open files. */
export const unnamedFolder = '/proc/self/fd';

/** A work file without a name: nothing of it is left, however the process ends. */
export interface UnnamedFile {
  /** Valid in this process, while the file is open. */
  readonly path: string;
  size(): Promise<number>;
  close(): Promise<void>;
}

/** Opens an empty file without a name. */
export async function openUnnamedFile(): Promise<UnnamedFile> {
  const name = path.join(tmpdir(), `tributary-${randomUUID()}`);
  const handle = await namingDisk(name, () => open(name, 'wx+', 0o600));
  await rm(name);
  return {
    path: path.join(unnamedFolder, String(handle.fd)),
    size: async () => (await handle.stat()).size,
    close: () => handle.close(),
  };
}

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
