import path from 'node:path';
import { findTree } from '../../runtime/files/folder-names.ts';
import { decodePath, type AddAction } from './actions.ts';
import { removeEmptyFolders } from '../../runtime/files/work-files.ts';

/**
 * Folder of the young files, relative to the table's. Readers of folders (Arrow, pandas, Spark) skip names with an
 * underscore.
 */
export const youngFolder = '_young';

/**
 * Folder of the sealed files. Each is shown to readers of folders at its place, a hard link in the folder of its
 * partition (lake/files/places.ts).
 */
export const sealedFolder = '_sealed';

/** Folders of young files of earlier versions: up to 0.2 flushes, up to 0.3 loads. Removed with their last files. */
export const formerYoungFolders = ['fresh', '_load'] as const;

/** Folders of rewrites of version 0.3. */
const formerSealedFolders = ['_rewritten', '_unload'] as const;

const youngPrefixes = [youngFolder, ...formerYoungFolders].map((folder) => `${folder}/`);
const sealedPrefix = `${sealedFolder}/`;

/** Reports whether a relative path with `/` is that of a young file. */
export function isYoungPath(relative: string): boolean {
  return youngPrefixes.some((prefix) => relative.startsWith(prefix));
}

/** Suffix of a rewrite: the id of its change and its number there. */
const rewriteSuffix = /\.[0-9a-f]{8}-[0-9a-f-]{27}-\d+\.parquet$/;

/** Returns the path of a sealed file that is shown at `place`. `change`: the file is a rewrite of that change. */
export function sealedPath(place: string, change?: { readonly id: string; readonly index: number }): string {
  if (change === undefined) return `${sealedPrefix}${place}`;
  return `${sealedPrefix}${place.replace(/\.parquet$/, '')}.${change.id}-${change.index}.parquet`;
}

/** Reports whether a path is that of the first file of its place. */
export function isFirstOfPlace(relative: string): boolean {
  return relative.startsWith(sealedPrefix) && !rewriteSuffix.test(relative);
}

/**
 * Returns the path at which readers of folders find a sealed file; undefined for a young one. A sealed file of an
 * earlier version is its own place.
 */
export function placeOf(relative: string, tags?: AddAction['tags']): string | undefined {
  if (isYoungPath(relative)) return undefined;
  if (relative.startsWith(sealedPrefix)) return relative.slice(sealedPrefix.length).replace(rewriteSuffix, '.parquet');
  const replaced = tags?.['replaces'];
  return (typeof replaced === 'string' ? decodePath(replaced) : undefined) ?? relative;
}

/** Lists the relative paths in a log: of live and removed files, and their places. */
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

/** Lists the files in the folders of young files, as relative paths. */
export async function listYoungPaths(tableDir: string): Promise<string[]> {
  return (await Promise.all([youngFolder, 'fresh'].map((folder) => listPaths(tableDir, folder)))).flat();
}

/** Lists the data files in other folders of earlier versions, as relative paths. */
export async function listFormerPaths(tableDir: string): Promise<string[]> {
  const folders = ['_load', ...formerSealedFolders];
  const paths = (await Promise.all(folders.map((folder) => listPaths(tableDir, folder)))).flat();
  return paths.filter((name) => name.endsWith('.parquet'));
}

/** Removes the empty folders of earlier versions. */
export async function removeFormerFolders(tableDir: string): Promise<void> {
  for (const folder of [...formerYoungFolders, ...formerSealedFolders])
    await removeEmptyFolders(path.join(tableDir, folder));
}
