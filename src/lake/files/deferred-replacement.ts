/**
 * Shows sealed files to readers of the plain glob.
 *
 * In: the live files of the log. Out: a hard link to each in the Hive folder of its partition. Readers and tools take
 * hard links for plain files. After a copy without links, the next start links the files again.
 * Invariant: each path changes in one step, by a new link or a rename over the file that was shown. A rewrite is shown
 * once that file has been out of the table for the retention, so that every row is shown exactly once. A table outside
 * of folders has only its log. Several files for several others: merged-folders.ts.
 * Crash: the first run after a start compares each path with the log.
 */
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import {
  ensureFolder,
  ensureFolders,
  removeFile,
  syncFolder,
  syncFolders,
  moveFile,
  linkFile,
} from '../../runtime/files/durable-file.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { unlessMissing, type AppError } from '../../runtime/errors.ts';
import { findSize, findFileId } from '../../runtime/files/file-checks.ts';
import { tableFolderMode } from '../../runtime/files/group-access.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import { isFirstOfPublishedPath, isMergedPath, publishedPathOf } from '../log/young-folder.ts';
import { openStagingFolder, type StagingFolder } from './staging.ts';
import { tableStore } from '../log/log-files.ts';
import { findFileDamage } from './data-file.ts';

export const replacementSteps = ['place-linked', 'place-taken'] as const;

/** Reports whether readers of folders exist. This alone separates tables in folders from others. */
const isInFolders = (tableDir: string): boolean => tableStore(tableDir).folder !== undefined;

/** Finds the file that is shown at the path of another; without folders each file counts as shown. */
export async function findPublished(
  tableDir: string,
  { path: relative, publishedPath }: Pick<DataFile, 'path' | 'publishedPath'>,
): Promise<'itself' | 'another' | 'none'> {
  if (publishedPath === undefined || publishedPath === relative || !isInFolders(tableDir)) return 'itself';
  const publishedId = await findFileId(path.join(tableDir, publishedPath));
  if (publishedId === undefined) return 'none';
  return publishedId === (await findFileId(path.join(tableDir, relative))) ? 'itself' : 'another';
}

/** Renames a link of a sealed file to `publishedPath`. `workDir`: a folder on the same file system. */
export async function replacePublished(
  tableDir: string,
  file: string,
  publishedPath: string,
  workDir: string,
): Promise<void> {
  const temporary = path.join(workDir, `${randomUUID()}.link`);
  await linkFile(path.join(tableDir, file), temporary);
  try {
    await moveFile(temporary, path.join(tableDir, publishedPath));
  } finally {
    // rename(2) leaves two links of one file unchanged.
    await removeFile(temporary);
  }
}

/** Shows new sealed files at their paths durably; rewrites wait. */
export async function publishFirst(tableDir: string, files: readonly string[], workDir: string): Promise<void> {
  const firsts = isInFolders(tableDir) ? files.filter(isFirstOfPublishedPath) : [];
  const placed = firsts.map((relative) => ({ path: relative, publishedPath: publishedPathOf(relative) ?? relative }));
  const folderOf = ({ publishedPath }: (typeof placed)[number]): string =>
    path.dirname(path.join(tableDir, publishedPath));
  await ensureFolders(placed.map(folderOf), tableFolderMode);
  for (const one of placed) {
    if ((await findPublished(tableDir, one)) === 'itself') continue;
    await replacePublished(tableDir, one.path, one.publishedPath, workDir);
    await syncFolder(folderOf(one));
  }
}

/** Lists the rewrites that are not shown yet. */
export async function listDeferredReplacements(tableDir: string, files: readonly DataFile[]): Promise<DataFile[]> {
  const unshown: DataFile[] = [];
  for (const file of files)
    if (file.sinceMs !== undefined && (await findPublished(tableDir, file)) !== 'itself') unshown.push(file);
  return unshown;
}

/**
 * Returns when the files that are shown instead of this one left the table; undefined if its removal is yet to be
 * committed.
 */
export async function passOnSince(tableDir: string, file: DataFile): Promise<number | undefined> {
  return file.sinceMs !== undefined && (await findPublished(tableDir, file)) !== 'itself' ? file.sinceMs : undefined;
}

/** Restores missing or truncated live files from their links, under the maintenance lock. */
export async function restoreFromPublishedPaths(table: Table): Promise<number> {
  if (!isInFolders(table.dir)) return 0;
  let restored = 0;
  for (const file of table.snapshot().files) {
    const { path: relative, absolutePath, publishedPath = relative, sizeBytes, sha256 } = file;
    const publishedFile = path.join(table.dir, publishedPath);
    if (publishedPath === relative || (await findSize(absolutePath)) === sizeBytes) continue;
    if ((await findFileDamage({ absolutePath: publishedFile, sizeBytes, sha256 })) !== undefined) continue;
    await removeFile(absolutePath);
    await ensureFolder(path.dirname(absolutePath), tableFolderMode);
    await linkFile(publishedFile, absolutePath);
    await syncFolder(path.dirname(absolutePath));
    restored += 1;
  }
  return restored;
}

export interface ReplacementOptions {
  readonly nowMs: number;
  readonly retentionMs: number;
  readonly stagingDir: string;
  readonly crashPoint: CrashPoint;
}

/** The file that was found at each path. A path is compared once. */
export type PublishedPaths = Map<string, string>;

/** Shows each due live sealed file. Returns the number of changed paths. Error: `file_damaged`, after the others. */
export async function applyDueReplacements(
  table: Table,
  { nowMs, retentionMs, stagingDir, crashPoint }: ReplacementOptions,
  settled: PublishedPaths = new Map(),
): Promise<number> {
  const changed: string[] = [];
  let work: StagingFolder | undefined;
  let damage: AppError | undefined;
  try {
    for (const file of table.snapshot().files) {
      const { path: relative, publishedPath, sinceMs } = file;
      if (publishedPath === undefined || publishedPath === relative || settled.get(publishedPath) === relative)
        continue;
      const published = await findPublished(table.dir, file);
      // A merge is shown with its folder (merged-folders.ts).
      if (published === 'none' && isMergedPath(publishedPath)) continue;
      const isWaiting = sinceMs !== undefined && nowMs - sinceMs < retentionMs;
      if (published === 'another' && isWaiting) continue;
      if (published !== 'itself') {
        const found = published === 'another' ? await findFileDamage(file) : undefined;
        damage ??= found;
        if (found !== undefined) continue;
        if (published === 'none')
          await ensureFolder(path.dirname(path.join(table.dir, publishedPath)), tableFolderMode);
        work ??= await openStagingFolder(stagingDir, 'the renewal of places');
        await crashPoint('place-linked');
        // Readers of the table report a missing file.
        await unlessMissing(replacePublished(table.dir, relative, publishedPath, work.folder), undefined);
        await crashPoint('place-taken');
        changed.push(publishedPath);
      }
      settled.set(publishedPath, relative);
    }
  } finally {
    await work?.close();
  }
  await syncFolders(changed.map((publishedPath) => path.dirname(path.join(table.dir, publishedPath))));
  if (damage !== undefined) throw damage;
  return changed.length;
}
