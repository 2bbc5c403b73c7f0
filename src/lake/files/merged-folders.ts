/**
 * Shows merged files to readers of the plain glob: several files for several others.
 *
 * In: live files of merges whose folders still show the files that they replace. Out: the folder of the partition, with
 * a link to each file that must be shown, exchanged with the former folder in one step.
 * Invariant: a folder has each row once. The exchange waits for the retention, as every replacement. A reader that
 * lists the former folder meanwhile finds it complete: it stays in `staging/` for a minute.
 * Crash: a folder that was built is removed later. The next run compares folders with the log.
 */
import path from 'node:path';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { AppError } from '../../runtime/errors.ts';
import { ensureFolder, linkFile, syncFolder, syncFolders } from '../../runtime/files/durable-file.ts';
import { exchangeFolders } from '../../runtime/files/exchange-folders.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { tableFolderMode } from '../../runtime/files/group-access.ts';
import { makeFolder } from '../../runtime/files/make-folder.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import { isMergedPath } from '../log/young-folder.ts';
import { findFileDamage } from './data-file.ts';
import {
  findPublished,
  replacePublished,
  type PublishedPaths,
  type ReplacementOptions,
} from './deferred-replacement.ts';
import { formerFolder, openStagingFolder, removeFormerShown } from './staging.ts';

export const mergedFolderSteps = ['folder-linked', 'folder-exchanged'] as const;

/** Time for which a former folder stays for readers that list it, ms. A listing takes milliseconds. */
const formerMs = 60_000;

/** A live file with the path where readers of folders find it. */
type Shown = DataFile & { readonly publishedPath: string };

const isSealed = (file: DataFile): file is Shown => file.publishedPath !== undefined;

/** Groups sealed files by the folder where they are shown, relative to the table's. */
export function groupByFolder(files: readonly DataFile[]): Map<string, Shown[]> {
  const folders = new Map<string, Shown[]>();
  for (const file of files.filter(isSealed)) {
    const folder = path.posix.dirname(file.publishedPath);
    const group = folders.get(folder);
    if (group === undefined) folders.set(folder, [file]);
    else group.push(file);
  }
  return folders;
}

const isMerged = ({ publishedPath }: DataFile): boolean => isMergedPath(publishedPath ?? '');

/** Creates a test of whether a folder, relative to the table's, still shows what a merge has replaced. */
export function createPendingFolders(table: Table): (folder: string) => Promise<boolean> {
  let merged: ReturnType<typeof groupByFolder> | undefined;
  const known = new Map<string, boolean>();
  return async (folder) => {
    const found = known.get(folder);
    if (found !== undefined) return found;
    merged ??= groupByFolder(table.snapshot().files.filter(isMerged));
    let isPending = false;
    for (const file of merged.get(folder) ?? []) isPending ||= (await findPublished(table.dir, file)) === 'none';
    known.set(folder, isPending);
    return isPending;
  };
}

interface MergedFolder {
  readonly folder: string;
  /** All live files of the partition. */
  readonly files: readonly Shown[];
  /** Those of merges that are not shown. */
  readonly waiting: readonly Shown[];
  /** Whether the folder has files that the log does not name: those that the merge replaced. */
  readonly isReplacing: boolean;
}

/** Lists the folders whose merged files are due. `settled`: as in `applyDueReplacements`. */
export async function listDueFolders(
  table: Table,
  { nowMs, retentionMs }: Pick<ReplacementOptions, 'nowMs' | 'retentionMs'>,
  settled: PublishedPaths = new Map(),
): Promise<MergedFolder[]> {
  const due: MergedFolder[] = [];
  for (const [folder, files] of groupByFolder(table.snapshot().files)) {
    const waiting: Shown[] = [];
    for (const file of files)
      if (isMerged(file) && settled.get(file.publishedPath) !== file.path)
        if ((await findPublished(table.dir, file)) === 'none') waiting.push(file);
    if (waiting.length === 0) continue;
    const live = new Set(files.map(({ publishedPath }) => path.posix.basename(publishedPath)));
    const names = await findNames(path.join(table.dir, folder));
    const isReplacing = names.some((name) => name.endsWith('.parquet') && !live.has(name));
    if (!isReplacing || waiting.every(({ sinceMs = 0 }) => nowMs - sinceMs >= retentionMs))
      due.push({ folder, files, waiting, isReplacing });
  }
  return due;
}

/** Links what the folder must show into a new one, and exchanges both. */
async function exchange(
  tableDir: string,
  { folder, files }: MergedFolder,
  stagingDir: string,
  crashPoint: CrashPoint,
): Promise<void> {
  const shown = path.join(tableDir, folder);
  const fresh = formerFolder(stagingDir);
  await makeFolder(fresh, tableFolderMode);
  for (const file of files) {
    // A rewrite that waits for its readers stays behind the file that is shown.
    const isBehind = (await findPublished(tableDir, file)) === 'another';
    const source = isBehind ? file.publishedPath : file.path;
    await linkFile(path.join(tableDir, source), path.join(fresh, path.posix.basename(file.publishedPath)));
  }
  await syncFolder(fresh);
  await crashPoint('folder-linked');
  await exchangeFolders(fresh, shown);
  await crashPoint('folder-exchanged');
  await syncFolders([path.dirname(shown), stagingDir]);
}

/** Links merged files into a folder that shows nothing that they replace, as after a restore. */
async function linkEach(table: Table, { folder, waiting }: MergedFolder, stagingDir: string): Promise<void> {
  await ensureFolder(path.join(table.dir, folder), tableFolderMode);
  const work = await openStagingFolder(stagingDir, 'the links of merged files');
  try {
    for (const file of waiting) await replacePublished(table.dir, file.path, file.publishedPath, work.folder);
  } finally {
    await work.close();
  }
  await syncFolder(path.join(table.dir, folder));
}

/** Removes the folders that readers listed before an exchange, some time after it. */
export async function removeFormerFolders(stagingDir: string, retentionMs: number): Promise<void> {
  await removeFormerShown(stagingDir, Math.min(formerMs, retentionMs));
}

/**
 * Shows the merged files that are due. Under the maintenance lock: no other process may
 * link a file into a folder that is exchanged. Returns the number of folders. Errors, after the others: `file_damaged`,
 * `disk` if folders cannot be exchanged.
 */
export async function showMergedFolders(
  table: Table,
  { nowMs, retentionMs, stagingDir, crashPoint }: ReplacementOptions,
  settled: PublishedPaths = new Map(),
): Promise<number> {
  let changed = 0;
  let damage: AppError | undefined;
  for (const merged of await listDueFolders(table, { nowMs, retentionMs }, settled)) {
    let found: AppError | undefined;
    for (const file of merged.waiting) found ??= await findFileDamage(file);
    damage ??= found;
    // The replaced files are the only intact copy.
    if (found !== undefined) continue;
    if (merged.isReplacing) await exchange(table.dir, merged, stagingDir, crashPoint);
    else await linkEach(table, merged, stagingDir);
    for (const file of merged.waiting) settled.set(file.publishedPath, file.path);
    changed += 1;
  }
  if (damage !== undefined) throw damage;
  return changed;
}
