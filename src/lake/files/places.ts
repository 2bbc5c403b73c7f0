/**
 * The places of sealed files: what readers of the plain glob see of a table.
 *
 * In: the live files of the log. Out: at the place of each a hard link to it, in the Hive folder of its partition. Hard
 * links, because every reader and every tool takes them for plain files, none can dangle, and the log needs them anyway;
 * a copy that does not keep them is as good, and the next start of the service makes links of it again.
 * Invariant: each place changes in one step: one new link, or one rename of a link over the file that was shown. A
 * rewrite takes its place once that file has been out of the table for the retention. So a row is shown once, always.
 * Crash: the log says what is to be shown; each place is compared with it at the first look of a start.
 */
import { randomUUID } from 'node:crypto';
import { link, rename, stat } from 'node:fs/promises';
import path from 'node:path';
import { ensureFolder, removeFile, syncFolder, syncFolders } from '../../runtime/files/durable-file.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { isSystemError, type AppError } from '../../runtime/errors.ts';
import { findSize } from '../../runtime/files/file-checks.ts';
import { tableFolderMode } from '../../runtime/files/group-access.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Table } from '../log/table.ts';
import { placeOf } from '../log/young-folder.ts';
import { openStagingFolder, type StagingFolder } from './staging.ts';
import { findFileDamage } from './data-file.ts';

/** The steps of the renewal of a place at which a crash is tested. */
export const placeSteps = ['place-linked', 'place-taken'] as const;

async function findInode(file: string): Promise<string | undefined> {
  try {
    const { dev, ino } = await stat(file, { bigint: true });
    return `${dev}:${ino}`;
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/** What is at the place of a sealed file: the file itself, another one, or none. */
export async function findShown(
  tableDir: string,
  { path: relative, place }: Pick<DataFile, 'path' | 'place'>,
): Promise<'itself' | 'another' | 'none'> {
  if (place === undefined || place === relative) return 'itself';
  const shown = await findInode(path.join(tableDir, place));
  if (shown === undefined) return 'none';
  return shown === (await findInode(path.join(tableDir, relative))) ? 'itself' : 'another';
}

/** Renames a link of a sealed file to its place, whatever is there. `workDir`: a folder on the same file system. */
async function takePlace(tableDir: string, file: string, place: string, workDir: string): Promise<void> {
  const temporary = path.join(workDir, `${randomUUID()}.link`);
  await link(path.join(tableDir, file), temporary);
  try {
    await rename(temporary, path.join(tableDir, place));
  } finally {
    // Two links of one file are both left as they are by rename(2).
    await removeFile(temporary);
  }
}

/** Shows a sealed file at its place, durably. The folder of the place is there. */
export async function showFile(tableDir: string, relative: string, workDir: string): Promise<void> {
  const place = placeOf(relative);
  if (place === undefined || (await findShown(tableDir, { path: relative, place })) === 'itself') return;
  await takePlace(tableDir, relative, place, workDir);
  await syncFolder(path.dirname(path.join(tableDir, place)));
}

/** Lists the rewrites that are not shown yet, of some files of a table. */
export async function listUnshown(tableDir: string, files: readonly DataFile[]): Promise<DataFile[]> {
  const unshown: DataFile[] = [];
  for (const file of files)
    if (file.sinceMs !== undefined && (await findShown(tableDir, file)) !== 'itself') unshown.push(file);
  return unshown;
}

/**
 * When the file that is shown at the place of a file has left the table, should that one leave it now: a rewrite that is
 * not shown yet passes on the time since which it waits. Undefined: at the commit to come.
 */
export async function passOnSince(tableDir: string, file: DataFile): Promise<number | undefined> {
  return file.sinceMs !== undefined && (await findShown(tableDir, file)) === 'another' ? file.sinceMs : undefined;
}

/**
 * Puts back the live files that are gone, or cut short, and whole at their places: another engine's clean-up may have
 * taken them. Under the maintenance lock. Returns how many.
 */
export async function restoreFromPlaces(table: Table): Promise<number> {
  let restored = 0;
  for (const file of table.snapshot().files) {
    const { path: relative, absolutePath, place = relative, sizeBytes, sha256 } = file;
    const shown = path.join(table.dir, place);
    if (place === relative || (await findSize(absolutePath)) === sizeBytes) continue;
    if ((await findFileDamage({ absolutePath: shown, sizeBytes, sha256 })) !== undefined) continue;
    await removeFile(absolutePath);
    await ensureFolder(path.dirname(absolutePath), tableFolderMode);
    await link(shown, absolutePath);
    await syncFolder(path.dirname(absolutePath));
    restored += 1;
  }
  return restored;
}

export interface PlaceOptions {
  readonly nowMs: number;
  /** How long the file as it was stays for those who read older versions. */
  readonly retentionMs: number;
  readonly stagingDir: string;
  readonly crashPoint: CrashPoint;
}

/** The file, by its path, that was found at each place: a place is compared once. */
export type SettledPlaces = Map<string, string>;

/**
 * Shows each live sealed file at its place whose time has come. Returns how many places have changed. Errors:
 * `file_damaged` when a rewrite is damaged, after the others are in place: the file as it was is then the only copy,
 * and stays.
 */
export async function renewPlaces(
  table: Table,
  { nowMs, retentionMs, stagingDir, crashPoint }: PlaceOptions,
  settled: SettledPlaces = new Map(),
): Promise<number> {
  const changed: string[] = [];
  let work: StagingFolder | undefined;
  let damage: AppError | undefined;
  try {
    for (const file of table.snapshot().files) {
      const { path: relative, place, sinceMs } = file;
      if (place === undefined || place === relative || settled.get(place) === relative) continue;
      const shown = await findShown(table.dir, file);
      const isWaiting = sinceMs !== undefined && nowMs - sinceMs < retentionMs;
      if (shown === 'another' && isWaiting) continue;
      if (shown !== 'itself') {
        const found = shown === 'another' ? await findFileDamage(file) : undefined;
        damage ??= found;
        if (found !== undefined) continue;
        if (shown === 'none') await ensureFolder(path.dirname(path.join(table.dir, place)), tableFolderMode);
        work ??= await openStagingFolder(stagingDir, 'the renewal of places');
        await crashPoint('place-linked');
        await takePlace(table.dir, relative, place, work.folder).catch((error: unknown) => {
          // A file that is missing is found by who reads the table.
          if (!isSystemError(error, 'ENOENT')) throw error;
        });
        await crashPoint('place-taken');
        changed.push(place);
      }
      settled.set(place, relative);
    }
  } finally {
    await work?.close();
  }
  await syncFolders(changed.map((place) => path.dirname(path.join(table.dir, place))));
  if (damage !== undefined) throw damage;
  return changed.length;
}
