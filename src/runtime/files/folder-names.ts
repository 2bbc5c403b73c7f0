import { existsSync, readdirSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { isSystemError, unlessMissing } from '../errors.ts';

/** Lists the names in a folder, in no order. Errors: the system's. */
export async function listNames(folder: string): Promise<readonly string[]> {
  return await readdir(folder);
}

export async function findNames(folder: string): Promise<readonly string[]> {
  return await unlessMissing(listNames(folder), []);
}

/** Lists the names of the folders in a folder, in no order; empty without it. */
export async function findFolders(folder: string): Promise<readonly string[]> {
  const entries = await unlessMissing(readdir(folder, { withFileTypes: true }), []);
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
}

/** Lists the relative paths of the files and folders below a folder, in no order. Errors: the system's. */
export async function listTree(folder: string): Promise<readonly string[]> {
  return await readdir(folder, { recursive: true });
}

/** Lists the relative paths of the files below a folder, unordered; empty without the folder. */
export async function findFiles(folder: string): Promise<readonly string[]> {
  const entries = await unlessMissing(readdir(folder, { recursive: true, withFileTypes: true }), undefined);
  if (entries === undefined) return existsSync(folder) ? await findFiles(folder) : [];
  return (
    entries
      .filter((entry) => !entry.isDirectory())
      // Most files are in the folder itself: `path.relative()` would take most of the time of a large one.
      .map(({ parentPath, name }) =>
        parentPath === folder ? name : path.relative(folder, path.join(parentPath, name)),
      )
  );
}

export function listNamesSync(folder: string): readonly string[] {
  return readdirSync(folder);
}

/** Lists the names in a folder; undefined if there is none. Error: ENOTDIR if something else has its path. */
export function findNamesSync(folder: string): readonly string[] | undefined {
  try {
    return listNamesSync(folder);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    // The system also reports it for a parent that is a file.
    if (isSystemError(error, 'ENOTDIR') && !existsSync(folder)) return undefined;
    throw error;
  }
}
