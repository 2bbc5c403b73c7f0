/**
 * Files: durable writes, locks, checked JSON, folders and disks; nothing here depends on events.
 *
 * Invariant: a file is durable when `writeFileDurably` returns; a reader sees the old bytes or the new ones. A lock is
 * the kernel's, on the folder itself (lock.ts), and ends with its process. Crash: a temporary next to the file, with
 * the suffix `.tmp`, which the owner of the folder removes at its next start.
 */
import { constants } from 'node:fs';
import { cp, link, open, readFile, readdir, rename, rmdir, unlink, writeFile } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { isDiskFull, isSystemError, unlessMissing } from '../errors.ts';
import { inParallel } from '../async/in-parallel.ts';
import { makeFolder } from './make-folder.ts';

/** Makes the entries of a folder durable: names that were created, renamed or removed. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

export async function syncFile(file: string): Promise<void> {
  const handle = await open(file, 'r+');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Creates a folder with its parents, mode 0700 by default, durably. */
export async function ensureFolder(folder: string, mode = 0o700): Promise<void> {
  await ensureFolders([folder], mode);
}

/** Folders that are synced at a time: four take little longer than one. */
const syncWidth = 4;

export async function syncFolders(folders: Iterable<string>): Promise<void> {
  await inParallel(new Set(folders), syncWidth, syncFolder);
}

/** Levels above an existing folder that are synced too: as many as are ever created at once. */
const doubtedLevels = 3;

/** Syncs a folder that may belong to another user, or be on a file system that is read-only or has no sync. */
async function syncFolderIfOurs(folder: string): Promise<void> {
  try {
    await syncFolder(folder);
  } catch (error) {
    if (!isSystemError(error, 'EACCES', 'EPERM', 'EINVAL', 'EROFS')) throw error;
  }
}

/** Creates folders and syncs each parent once, also those of existing folders: a killed process may not have. */
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

/** Runs a write. On a full disk the system names no file; the error then names the disk, with the same code. */
export async function namingDisk<T>(file: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write();
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    const named = new Error(`no space is left on the disk of ${path.dirname(file)}`, { cause: error });
    throw Object.assign(named, { code: error.code });
  }
}

/** Writes a new file and syncs its bytes; the caller syncs the folder. Mode 0600 by default. Error: EEXIST. */
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
  readonly mode?: number;
  readonly temporary?: string;
  /** Called between the steps. An error before the link undoes everything. */
  readonly onWritten?: () => Promise<void>;
  readonly onLinked?: () => Promise<void>;
}

/** Creates a file durably unless it exists: temporary file, fsync, link, folder fsync. One of several writers wins. */
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

/** Replaces a file durably and atomically: temporary file, fsync, rename, folder fsync. Mode 0600 by default. */
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

/** Replaces a file atomically without fsync: a power cut may restore or damage it. Mode 0600 by default. */
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

/** Renames a file over any file of the new name. Durable once the caller has synced both folders. */
export async function moveFile(from: string, to: string): Promise<void> {
  await rename(from, to);
}

export async function linkFile(file: string, second: string): Promise<void> {
  await link(file, second);
}

export async function findTextFile(file: string): Promise<string | undefined> {
  return await unlessMissing(readFile(file, 'utf8'), undefined);
}

export async function removeFile(file: string): Promise<void> {
  await unlessMissing(unlink(file), undefined);
}

/** Removes a folder if it is there and empty. */
export async function removeEmptyFolder(folder: string): Promise<void> {
  await unlessMissing(rmdir(folder), undefined, 'ENOTEMPTY', 'EEXIST');
}

/** Copies a folder with all below it, durably. Symbolic links are followed. */
export async function copyFolder(folder: string, copy: string): Promise<void> {
  await cp(folder, copy, { recursive: true, dereference: true });
  for (const name of await readdir(copy, { recursive: true, withFileTypes: true })) {
    const entry = path.join(name.parentPath, name.name);
    await (name.isDirectory() ? syncFolder(entry) : syncFile(entry));
  }
  await syncFolders([copy, path.dirname(copy)]);
}
