import { randomUUID } from 'node:crypto';
import { appendFile, chmod, mkdir, mkdtemp, open, rm, writeFile, type FileHandle, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { namingDisk, ensureFolder, removeEmptyFolder } from './durable-file.ts';
import { findNames } from './folder-names.ts';
import { acquireLock, isLocked, waitForLock, type Lock } from './lock.ts';

// Files and folders for work in progress: private and not fsynced. The next owner of a folder removes what a crash
// leaves.

export async function writeWorkFile(file: string, data: string | Uint8Array): Promise<void> {
  await namingDisk(file, () => writeFile(file, data, { mode: 0o600 }));
}

export async function makeWorkFolder(folder: string): Promise<void> {
  await mkdir(folder, { mode: 0o700 });
}

/** Creates a folder with a unique name, in the system's temporary folder by default. */
export async function makeTemporaryFolder(prefix: string, parent = tmpdir()): Promise<string> {
  return await mkdtemp(path.join(parent, prefix));
}

export async function setMode(file: string, mode: number): Promise<void> {
  await chmod(file, mode);
}

export async function appendText(file: string, text: string): Promise<void> {
  await appendFile(file, text, { mode: 0o600 });
}

export async function removeTree(folder: string, maxRetries = 0): Promise<void> {
  await rm(folder, { recursive: true, force: true, maxRetries });
}

/** Removes the empty folders below a folder, and the folder if it is then empty. */
export async function removeEmptyFolders(folder: string): Promise<void> {
  for (const name of await findNames(folder)) {
    const below = path.join(folder, name);
    if ((await stat(below)).isDirectory()) await removeEmptyFolders(below);
  }
  await removeEmptyFolder(folder);
}

export interface WorkFile {
  append(bytes: Uint8Array): Promise<void>;
  /** Appends several parts without copying them. */
  appendAll(parts: readonly Uint8Array[]): Promise<void>;
  close(): Promise<void>;
}

/** Limit of the system (IOV_MAX). */
const maxParts = 1024;

/** Writes parts in order: the system may write only some of them at a time. */
async function writeAll(handle: FileHandle, parts: readonly Uint8Array[]): Promise<void> {
  let waiting = parts.filter(({ length }) => length > 0);
  while (waiting.length > 0) {
    let { bytesWritten } = await handle.writev(waiting.slice(0, maxParts));
    const next = waiting.findIndex(({ length }) => {
      if (length > bytesWritten) return true;
      bytesWritten -= length;
      return false;
    });
    const [partial, ...rest] = next === -1 ? [] : waiting.slice(next);
    waiting = partial === undefined ? [] : [partial.subarray(bytesWritten), ...rest];
  }
}

/** Opens an empty work file, replacing one of its name. */
export async function openWorkFile(file: string): Promise<WorkFile> {
  const handle = await open(file, 'w', 0o600);
  return {
    append: (bytes) => namingDisk(file, () => handle.appendFile(bytes)),
    appendAll: (parts) => namingDisk(file, () => writeAll(handle, parts)),
    close: () => handle.close(),
  };
}

/** Folder with the paths of a process's open files. */
export const unnamedFolder = '/proc/self/fd';

/** A work file without a name: it disappears with the process. */
export interface UnnamedFile {
  /** Valid in this process, while the file is open. */
  readonly path: string;
  size(): Promise<number>;
  close(): Promise<void>;
}

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

/** A scratch directory of one command. */
export interface ScratchDir {
  readonly dir: string;
  close(): Promise<void>;
}

const lockWaitMs = 10_000;

async function removeLeft(parent: string): Promise<void> {
  for (const name of await findNames(parent)) {
    const room = path.join(parent, name);
    if (!name.startsWith('.') && !isLocked(room)) await removeTree(room);
  }
}

/** Removes the scratch directories that killed commands left below `parent`. */
export async function removeStaleScratchDirs(parent: string, holder: string): Promise<void> {
  if ((await findNames(parent)).length === 0) return;
  const one = await waitForLock(parent, holder, lockWaitMs);
  try {
    await removeLeft(parent);
  } finally {
    one.release();
  }
}

/** Creates and locks a scratch directory under the parent's lock, so that none is removed before it is locked. */
async function makeRoom(parent: string, dir: string, holder: string): Promise<Lock> {
  const one = await waitForLock(parent, holder, lockWaitMs);
  try {
    await removeLeft(parent);
    return acquireLock(dir, holder);
  } finally {
    one.release();
  }
}

/** Opens a scratch directory below `parent`, which has no other entries. Errors: `locked`, the system's. */
export async function openScratchDir(parent: string, holder: string): Promise<ScratchDir> {
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
