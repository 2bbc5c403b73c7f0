import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { isSystemError } from '../../runtime/errors.ts';

/**
 * Folder of the young files, relative to the table's. Readers of folders (Arrow, pandas, Spark) skip what begins with
 * an underscore.
 */
export const youngFolder = '_young';

/**
 * Where versions up to 0.2 wrote their young files. Nothing new is written there: what such a lake has in it is read,
 * sealed, erased and removed by the paths in its log, and the folder goes with its last file.
 */
export const formerYoungFolder = 'fresh';

/**
 * Folder of the files of loads, relative to the table's: young files, each load's in a folder of its own, which is
 * locked while it is under way (lake/files/load-folders.ts).
 */
export const loadFolder = '_load';

const youngPrefixes = [youngFolder, loadFolder, formerYoungFolder].map((folder) => `${folder}/`);

/** Says whether a path, relative to the table's folder and with `/`, is that of a young file. */
export function isYoungPath(relative: string): boolean {
  return youngPrefixes.some((prefix) => relative.startsWith(prefix));
}

/** Lists what lies in the folders of young files, as paths relative to the table's folder. */
export async function listYoungPaths(tableDir: string): Promise<string[]> {
  const list = async (folder: string): Promise<string[]> => {
    try {
      return (await readdir(path.join(tableDir, folder))).map((name) => `${folder}/${name}`);
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return [];
      throw error;
    }
  };
  return [...(await list(youngFolder)), ...(await list(formerYoungFolder))];
}
