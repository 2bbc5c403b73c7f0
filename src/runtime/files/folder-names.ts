import { existsSync, readdirSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { isSystemError } from '../errors.ts';

/** Lists the names in a folder, in no order. Errors: those of the system, also when there is none. */
export async function listNames(folder: string): Promise<readonly string[]> {
  return await readdir(folder);
}

/** As `listNames`; none where there is no folder. */
export async function findNames(folder: string): Promise<readonly string[]> {
  try {
    return await listNames(folder);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return [];
    throw error;
  }
}

/** Lists the paths below a folder, of files and folders, relative to it and in no order. Errors: the system's. */
export async function listTree(folder: string): Promise<readonly string[]> {
  return await readdir(folder, { recursive: true });
}

/** As `listTree`; none where there is no folder, or where one below it is removed meanwhile. */
export async function findTree(folder: string): Promise<readonly string[]> {
  try {
    return await listTree(folder);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return [];
    throw error;
  }
}

/**
 * Lists the paths of the files below a folder, relative to it and in no order; none where there is no folder, or where
 * one below it is removed meanwhile.
 */
export async function findFiles(folder: string): Promise<readonly string[]> {
  try {
    const entries = await readdir(folder, { recursive: true, withFileTypes: true });
    return entries
      .filter((entry) => !entry.isDirectory())
      .map(({ parentPath, name }) => path.relative(folder, path.join(parentPath, name)));
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return [];
    throw error;
  }
}

/** As `listNames`, without waiting. */
export function listNamesSync(folder: string): readonly string[] {
  return readdirSync(folder);
}

/**
 * Lists the names in a folder without waiting; undefined where there is nothing at the path. Error: ENOTDIR where there
 * is something else, such as a file.
 */
export function findNamesSync(folder: string): readonly string[] | undefined {
  try {
    return listNamesSync(folder);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    // Said of the path as well when one of its parents is a file.
    if (isSystemError(error, 'ENOTDIR') && !existsSync(folder)) return undefined;
    throw error;
  }
}
