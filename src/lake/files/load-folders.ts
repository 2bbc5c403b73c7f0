import { randomUUID } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { ensureFolder, removeEmptyFolder, removeFile, syncFolders } from '../../runtime/files/durable-file.ts';
import { AppError, isAppError, isSystemError } from '../../runtime/errors.ts';
import { findFolderId } from '../../runtime/files/folder-id.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { tableFolderMode } from '../../runtime/files/group-access.ts';
import { acquireLock, isLocked, type Lock } from '../../runtime/files/lock.ts';
import { makeFolder } from '../../runtime/files/make-folder.ts';
import { makeWorkFolder, removeTree } from '../../runtime/files/work-files.ts';
import { decodePath } from '../log/actions.ts';
import type { Table } from '../log/table.ts';
import { loadFolder } from '../log/young-folder.ts';

/**
 * The folder of a load's files: they are written where they stay, below the table's folder, and are in the table by the
 * commit that names them, without a rename. The folder is locked while the load is under way; what no commit names in a
 * folder that nobody locks is left over. So a kill at any instant leaves nothing visible, and no sweep of another takes
 * what is under way.
 */

/** Folder of the rewrites of sealed files that an undone load leaves, beside that of the loads. */
export const unloadFolder = '_unload';

export interface LoadFolder {
  /** Absolute path, for files of the table. */
  readonly dir: string;
  /** Absolute path, for what goes with the load: owner only. */
  readonly workDir: string;
  /** A path below the folder, relative to the table's folder. */
  toRelative(file: string): string;
  /** Makes a folder for files of the table. */
  makeRoom(name: string): Promise<string>;
  /** Makes what is in the folder, and the folder, survive a power cut. */
  sync(): Promise<void>;
  /** Removes whatever the log does not name, and ends the lock. */
  close(): Promise<void>;
}

/** Paths that the log names, relative to the table's folder: live files, and those removed that readers may still use. */
function listNamed(table: Table): ReadonlySet<string> {
  const { files, tombstones } = table.state();
  return new Set([...files.keys(), ...tombstones.keys()].map((encoded) => decodePath(encoded) ?? ''));
}

/** Removes what the log does not name from a folder whose lock is held, and the folder when it is empty then. */
async function clear(table: Table, folder: string): Promise<number> {
  // What a commit has named, however it ended, is known after this only.
  await table.refresh();
  const named = listNamed(table);
  let removed = 0;
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    const file = path.join(entry.parentPath, entry.name);
    const relative = path.relative(table.dir, file).split(path.sep).join('/');
    if (entry.isDirectory() || named.has(relative)) continue;
    await removeFile(file);
    if (entry.name.endsWith('.parquet')) removed += 1;
  }
  await removeEmptyFolders(folder);
  return removed;
}

/** Removes a folder and those in it, as far as they are empty. */
async function removeEmptyFolders(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { withFileTypes: true }))
    if (entry.isDirectory()) await removeEmptyFolders(path.join(folder, entry.name));
  await removeEmptyFolder(folder);
}

/** How often another folder is tried in the place of one that a sweep has met before it was locked. */
const maxOpenings = 100;

interface Opened {
  readonly dir: string;
  readonly workDir: string;
  readonly lock: Lock;
}

/**
 * Makes a folder with one for the work, and locks it. The sweep of another load may come in between: it has the lock
 * then, or has removed both, and the locking has made the outer one anew, for the owner alone. Undefined: it was so.
 */
async function tryOpen(root: string, holder: string): Promise<Opened | undefined> {
  const dir = path.join(root, randomUUID());
  const workDir = path.join(dir, 'work');
  // Nothing is synced before the lock: that would give a sweep its time.
  await makeFolder(dir, tableFolderMode);
  let lock: Lock;
  try {
    await makeWorkFolder(workDir);
    lock = acquireLock(dir, holder);
  } catch (error) {
    if (isAppError(error, 'locked') || isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
  if (findFolderId(workDir) !== undefined) return { dir, workDir, lock };
  await removeTree(dir);
  lock.release();
  return undefined;
}

/**
 * Opens a folder for a load, or for the undoing of one, and locks it. Errors: `locked` where sweeps are first each
 * time, the system's.
 */
export async function openLoadFolder(
  table: Table,
  holder: string,
  parent: typeof loadFolder | typeof unloadFolder = loadFolder,
): Promise<LoadFolder> {
  const root = path.join(table.dir, parent);
  await ensureFolder(root, tableFolderMode);
  let opened: Opened | undefined;
  for (let opening = 0; opened === undefined && opening < maxOpenings; opening += 1)
    opened = await tryOpen(root, holder);
  if (opened === undefined)
    throw new AppError('locked', `the folders of loads in ${root} are swept again and again`, {
      hint: 'Stop what begins loads all the time, then repeat the command.',
    });
  const { dir, workDir, lock } = opened;
  await ensureFolder(workDir);
  const rooms: string[] = [];
  return {
    dir,
    workDir,
    toRelative: (file) => path.relative(table.dir, file).split(path.sep).join('/'),
    async makeRoom(name) {
      const room = path.join(dir, name);
      await ensureFolder(room, tableFolderMode);
      rooms.push(room);
      return room;
    },
    sync: () => syncFolders([...rooms, dir, root, table.dir]),
    async close() {
      await closeFolder(table, dir, workDir, lock);
    },
  };
}

async function closeFolder(table: Table, dir: string, workDir: string, lock: Lock): Promise<void> {
  try {
    await removeTree(workDir);
    await clear(table, dir);
  } finally {
    lock.release();
  }
}

/** Lists what is in a folder of a table's load folders: absolute paths. */
async function listFolders(tableDir: string, parent: string): Promise<string[]> {
  return (await findNames(path.join(tableDir, parent))).map((name) => path.join(tableDir, parent, name));
}

/** Lists the folders of loads, and of undone ones, of a table: absolute paths. */
async function listLoadFolders(tableDir: string): Promise<string[]> {
  return [...(await listFolders(tableDir, loadFolder)), ...(await listFolders(tableDir, unloadFolder))];
}

/** Says whether any load into a table is under way. */
export async function hasRunningLoad(tableDir: string): Promise<boolean> {
  return (await listFolders(tableDir, loadFolder)).some((folder) => isLocked(folder));
}

/**
 * Removes what loads have left that were killed. Any process may do so at any time: folders of loads that are under way
 * are locked. Returns how many files went.
 */
export async function sweepLoadFolders(table: Table): Promise<number> {
  let removed = 0;
  for (const folder of await listLoadFolders(table.dir)) {
    let lock: Lock;
    try {
      lock = acquireLock(folder, 'a sweep');
    } catch (error) {
      // Its owner has it, or has just removed it.
      if (isAppError(error, 'locked') || isSystemError(error, 'ENOENT')) continue;
      throw error;
    }
    try {
      removed += await clear(table, folder);
    } finally {
      lock.release();
    }
  }
  return removed;
}

/** Says whether a file, by its path relative to the table's folder, is of a load that is under way. */
export function isOfRunningLoad(tableDir: string, relative: string): boolean {
  const [parent, name] = relative.split(/[/\\]/);
  if (name === undefined || (parent !== loadFolder && parent !== unloadFolder)) return false;
  return isLocked(path.join(tableDir, parent, name));
}
