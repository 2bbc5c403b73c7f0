/**
 * Files: durable writes, locks, checked JSON, folders and disks, with no word of events.
 *
 * Invariant: what `writeFileDurably` has returned from survives a power cut; a reader sees the old bytes or the new
 * ones. A lock is the kernel's, on the folder itself (lock.ts), and ends with its process.
 * Crash: a temporary beside the file, with `.tmp` at its end, for the owner of the folder to remove at its next start.
 */
import { constants } from 'node:fs';
import { link, open, readFile, rename, rmdir, unlink, writeFile } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { isDiskFull, isSystemError } from '../errors.ts';
import { inParallel } from '../async/in-parallel.ts';
import { makeFolder } from './make-folder.ts';

/** Makes a folder's entries (names created, renamed or removed in it) survive a power cut. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Makes a file's bytes survive a power cut. */
export async function syncFile(file: string): Promise<void> {
  const handle = await open(file, 'r+');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Creates a folder with its parents, mode 0700 unless another is given, and syncs the parent so that the folder itself
 * is durable.
 */
export async function ensureFolder(folder: string, mode = 0o700): Promise<void> {
  await ensureFolders([folder], mode);
}

/** How many folders are synced at a time: together they cost little more than one. */
const syncWidth = 4;

/** Syncs many folders. */
export async function syncFolders(folders: Iterable<string>): Promise<void> {
  await inParallel(new Set(folders), syncWidth, syncFolder);
}

/** Levels above a folder that was there already which are synced all the same: as many as are ever created at once. */
const doubtedLevels = 3;

/**
 * Syncs a folder that may belong to somebody else, or to a file system that is read-only or knows no sync: nothing of
 * ours was created there.
 */
async function syncFolderIfOurs(folder: string): Promise<void> {
  try {
    await syncFolder(folder);
  } catch (error) {
    if (!isSystemError(error, 'EACCES', 'EPERM', 'EINVAL', 'EROFS')) throw error;
  }
}

/**
 * Creates many folders with their parents, as `ensureFolder` does, and syncs each parent once: also those of folders
 * that are there already, since a process that was killed may have created them and not got as far as the sync.
 */
export async function ensureFolders(folders: Iterable<string>, mode = 0o700): Promise<void> {
  const created = new Set<string>();
  const doubted = new Set<string>();
  for (const folder of new Set(folders)) {
    const first = await makeFolder(folder, mode);
    for (let [parent, level] = [path.dirname(folder), 1]; ; [parent, level] = [path.dirname(parent), level + 1]) {
      const isNew = first !== undefined && parent.length >= path.dirname(first).length;
      if (!isNew && level > doubtedLevels) break;
      (isNew ? created : doubted).add(parent);
      if (parent === path.dirname(parent)) break;
    }
  }
  await syncFolders(created);
  await inParallel(
    [...doubted].filter((folder) => !created.has(folder)),
    syncWidth,
    syncFolderIfOurs,
  );
}

/** Runs a write. The error of a full disk, in which the system names no file, then says which disk it is, with its code. */
export async function namingDisk<T>(file: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write();
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    const { code } = error as NodeJS.ErrnoException;
    const named = new Error(`no space is left on the disk of ${path.dirname(file)}`, { cause: error });
    throw Object.assign(named, { code });
  }
}

/**
 * Writes a new file and makes its bytes survive a power cut; its name does once the caller has synced the folder.
 * Error: EEXIST. Mode 0600 unless another is given.
 */
export async function writeNewFile(file: string, data: string | Uint8Array, mode = 0o600): Promise<void> {
  await namingDisk(file, async () => {
    const handle = await open(file, 'wx', mode);
    try {
      await handle.writeFile(data);
      await handle.sync();
    } finally {
      await handle.close();
    }
  });
}

const temporaryOf = (file: string): string => `${file}.${process.pid}.${randomBytes(4).toString('hex')}.tmp`;

export interface CreateOptions {
  /** 0600 unless another is given. */
  readonly mode?: number;
  /** Path of the temporary, in the folder of the file; one of its own name otherwise. */
  readonly temporary?: string;
  /** Called between the steps; what it throws breaks off, before the link with nothing done. */
  readonly onWritten?: () => Promise<void>;
  readonly onLinked?: () => Promise<void>;
}

/**
 * Creates a file whole and durable, or finds that there is one of that name already, which stays as it is: of several
 * writers at once link(2) lets one win. Temporary file in the same folder, fsync, link, fsync of the folder.
 */
export async function createExclusive(
  file: string,
  data: string | Uint8Array,
  options: CreateOptions = {},
): Promise<'created' | 'exists'> {
  const temporary = options.temporary ?? temporaryOf(file);
  try {
    await writeNewFile(temporary, data, options.mode);
    await options.onWritten?.();
    await link(temporary, file);
    await options.onLinked?.();
  } catch (error) {
    if (isSystemError(error, 'EEXIST')) return 'exists';
    throw error;
  } finally {
    await removeFile(temporary);
  }
  await syncFolder(path.dirname(file));
  return 'created';
}

/**
 * Writes a whole file so that a reader, or a restart after a power cut, sees the old bytes or the new ones and never
 * a mixture: temporary file in the same folder, fsync, rename, fsync of the folder. Mode 0600 unless another is given.
 */
export async function writeFileDurably(file: string, data: string | Uint8Array, mode = 0o600): Promise<void> {
  const temporary = temporaryOf(file);
  try {
    await writeNewFile(temporary, data, mode);
    await rename(temporary, file);
  } catch (error) {
    await removeFile(temporary);
    throw error;
  }
  await syncFolder(path.dirname(file));
}

/**
 * Writes a whole file so that a reader sees the old bytes or the new ones, without an fsync: after a power cut it may be
 * either, or damaged. For what its reader can do without. Mode 0600 unless another is given.
 */
export async function replaceFile(file: string, data: string | Uint8Array, mode = 0o600): Promise<void> {
  const temporary = temporaryOf(file);
  try {
    await namingDisk(file, () => writeFile(temporary, data, { mode }));
    await rename(temporary, file);
  } catch (error) {
    await removeFile(temporary);
    throw error;
  }
}

/**
 * Gives a file another name, in the place of what has it. Both names survive a power cut once the caller has synced
 * their folders.
 */
export async function moveFile(from: string, to: string): Promise<void> {
  await rename(from, to);
}

/** Reads a text file; undefined when there is none. */
export async function findTextFile(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/** Removes a file; one that is not there is already removed. */
export async function removeFile(file: string): Promise<void> {
  try {
    await unlink(file);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
  }
}

/** Removes a folder that is empty; one that is not, or is not there, stays as it is. */
export async function removeEmptyFolder(folder: string): Promise<void> {
  try {
    await rmdir(folder);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT', 'ENOTEMPTY', 'EEXIST')) throw error;
  }
}
