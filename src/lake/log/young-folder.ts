import path from 'node:path';
import { decodePath, type AddAction } from './actions.ts';
import { tableStore } from './log-files.ts';
import { removeEmptyFolders } from '../../runtime/files/work-files.ts';

/** Folder of young files in the table's. Arrow, pandas and Spark skip names with an underscore. */
export const youngFolder = '_young';

/** Folder of sealed files. Each has a hard link in its partition's folder (lake/files/deferred-replacement.ts). */
export const sealedFolder = '_sealed';

/** Former folders of young files: of flushes up to 0.2, of loads up to 0.3. */
export const formerYoungFolders = ['fresh', '_load'] as const;

const formerSealedFolders = ['_rewritten', '_unload'] as const;

/** Folders in which flushes write. */
export const youngFolders = [youngFolder, 'fresh'] as const;

const youngPrefixes = [youngFolder, ...formerYoungFolders].map((folder) => `${folder}/`);
const sealedPrefix = `${sealedFolder}/`;

export function isYoungPath(relative: string): boolean {
  return youngPrefixes.some((prefix) => relative.startsWith(prefix));
}

/** Suffix of a rewrite: change id and number. */
const rewriteSuffix = /\.[0-9a-f]{8}-[0-9a-f-]{27}-\d+\.parquet$/;

/** Returns the path of a sealed file that is shown at `publishedPath`. `change`: set for a rewrite. */
export function sealedPath(publishedPath: string, change?: { readonly id: string; readonly index: number }): string {
  if (change === undefined) return `${sealedPrefix}${publishedPath}`;
  return `${sealedPrefix}${publishedPath.replace(/\.parquet$/, '')}.${change.id}-${change.index}.parquet`;
}

/** Suffix of the files of a merge. They replace several others, so their folder changes atomically. */
const mergedSuffix = /-merged-\d+\.parquet$/;

/** Returns the path of a file that a merge writes. `folder`: that of its partition. */
export function mergedPath(folder: string, id: string, index: number): string {
  return sealedPath(`${folder}/${id}-merged-${index}.parquet`);
}

/** Reports whether a file, or what it rewrites, is of a merge. */
export function isMergedPath(publishedPath: string): boolean {
  return mergedSuffix.test(publishedPath);
}

/** Reports whether readers of folders see a sealed file as soon as it is committed. */
export function isFirstOfPublishedPath(relative: string): boolean {
  return relative.startsWith(sealedPrefix) && !rewriteSuffix.test(relative) && !isMergedPath(relative);
}

/** Returns the path at which readers of folders find a sealed file; undefined for a young one. */
export function publishedPathOf(relative: string, tags?: AddAction['tags']): string | undefined {
  if (isYoungPath(relative)) return undefined;
  if (relative.startsWith(sealedPrefix)) return relative.slice(sealedPrefix.length).replace(rewriteSuffix, '.parquet');
  const replaced = tags?.['replaces'];
  return (typeof replaced === 'string' ? decodePath(replaced) : undefined) ?? relative;
}

/** Lists the relative paths in a log, of live and removed files, and the paths where they are shown. */
export function listKnownPaths(files: Iterable<AddAction>, removed: Iterable<string>): ReadonlySet<string> {
  const known = new Set<string>();
  const note = (encoded: string, tags?: AddAction['tags']): void => {
    const relative = decodePath(encoded);
    if (relative === undefined) return;
    known.add(relative);
    const publishedPath = publishedPathOf(relative, tags);
    if (publishedPath !== undefined) known.add(publishedPath);
  };
  for (const add of files) note(add.path, add.tags);
  for (const encoded of removed) note(encoded);
  return known;
}

async function listPaths(tableDir: string, folders: readonly string[]): Promise<string[]> {
  const store = tableStore(tableDir);
  return (await Promise.all(folders.map((folder) => store.list(`${folder}/`)))).flat();
}

export async function listYoungPaths(tableDir: string): Promise<string[]> {
  return await listPaths(tableDir, youngFolders);
}

export async function listFormerPaths(tableDir: string): Promise<string[]> {
  const paths = await listPaths(tableDir, ['_load', ...formerSealedFolders]);
  return paths.filter((name) => name.endsWith('.parquet'));
}

export async function removeFormerFolders(tableDir: string): Promise<void> {
  for (const folder of [...formerYoungFolders, ...formerSealedFolders])
    await removeEmptyFolders(path.join(tableDir, folder));
}
