import { stat } from 'node:fs/promises';
import path from 'node:path';
import { removeEmptyFolder } from '../../runtime/files/durable-file.ts';
import { findNames, findTree } from '../../runtime/files/folder-names.ts';
import { decodePath, type AddAction } from './actions.ts';

/**
 * Folder of the young files, relative to the table's. Readers of folders (Arrow, pandas, Spark) skip what begins with
 * an underscore.
 */
export const youngFolder = '_young';

/**
 * Folder of the sealed files. Each is shown to readers of folders at a place of its own, a hard link in the folder of
 * its partition (lake/files/places.ts).
 */
export const sealedFolder = '_sealed';

/**
 * Where earlier versions wrote young files: up to 0.2 flushes, up to 0.3 loads. Nothing new is written there; the
 * folders go with their last files.
 */
export const formerYoungFolders = ['fresh', '_load'] as const;

/** Where version 0.3 wrote rewrites of sealed files. */
const formerSealedFolders = ['_rewritten', '_unload'] as const;

const youngPrefixes = [youngFolder, ...formerYoungFolders].map((folder) => `${folder}/`);
const sealedPrefix = `${sealedFolder}/`;

/** Reports whether a path, relative to the table's folder and with `/`, is that of a young file. */
export function isYoungPath(relative: string): boolean {
  return youngPrefixes.some((prefix) => relative.startsWith(prefix));
}

/** What the name of a rewrite has behind that of the sealed file: the id of its change and its number there. */
const rewriteSuffix = /\.[0-9a-f]{8}-[0-9a-f-]{27}-\d+\.parquet$/;

/** Returns the path of a sealed file that is shown at `place`. `change`: the file is a rewrite, made by that change. */
export function sealedPath(place: string, change?: { readonly id: string; readonly index: number }): string {
  if (change === undefined) return `${sealedPrefix}${place}`;
  return `${sealedPrefix}${place.replace(/\.parquet$/, '')}.${change.id}-${change.index}.parquet`;
}

/** Reports whether a path is that of the first file of its place, which nothing was shown at before. */
export function isFirstOfPlace(relative: string): boolean {
  return relative.startsWith(sealedPrefix) && !rewriteSuffix.test(relative);
}

/**
 * Returns the path at which readers of folders find the rows of a sealed file; undefined for a young file. A sealed file
 * of an earlier version is its own place.
 */
export function placeOf(relative: string, tags?: AddAction['tags']): string | undefined {
  if (isYoungPath(relative)) return undefined;
  if (relative.startsWith(sealedPrefix)) return relative.slice(sealedPrefix.length).replace(rewriteSuffix, '.parquet');
  const replaced = tags?.['replaces'];
  return (typeof replaced === 'string' ? decodePath(replaced) : undefined) ?? relative;
}

/** Lists the paths, relative to the table's folder, that a log knows: of live and removed files, and their places. */
export function listKnownPaths(files: Iterable<AddAction>, removed: Iterable<string>): ReadonlySet<string> {
  const known = new Set<string>();
  const note = (encoded: string, tags?: AddAction['tags']): void => {
    const relative = decodePath(encoded);
    if (relative === undefined) return;
    known.add(relative);
    const place = placeOf(relative, tags);
    if (place !== undefined) known.add(place);
  };
  for (const add of files) note(add.path, add.tags);
  for (const encoded of removed) note(encoded);
  return known;
}

async function listPaths(tableDir: string, folder: string): Promise<string[]> {
  return (await findTree(path.join(tableDir, folder))).map((name) => `${folder}/${name.split(path.sep).join('/')}`);
}

/** Lists what lies in the folders of young files, as paths relative to the table's folder. */
export async function listYoungPaths(tableDir: string): Promise<string[]> {
  return (await Promise.all([youngFolder, 'fresh'].map((folder) => listPaths(tableDir, folder)))).flat();
}

/** Lists the data files in the other folders that earlier versions wrote to, relative to the table's folder. */
export async function listFormerPaths(tableDir: string): Promise<string[]> {
  const folders = ['_load', ...formerSealedFolders];
  const paths = (await Promise.all(folders.map((folder) => listPaths(tableDir, folder)))).flat();
  return paths.filter((name) => name.endsWith('.parquet'));
}

/** Removes a folder and those in it, as far as they are empty. */
async function removeEmptyFolders(folder: string): Promise<void> {
  for (const name of await findNames(folder)) {
    const below = path.join(folder, name);
    if ((await stat(below)).isDirectory()) await removeEmptyFolders(below);
  }
  await removeEmptyFolder(folder);
}

/** Removes the folders that earlier versions wrote to, as far as they are empty. */
export async function removeFormerFolders(tableDir: string): Promise<void> {
  for (const folder of [...formerYoungFolders, ...formerSealedFolders])
    await removeEmptyFolders(path.join(tableDir, folder));
}
