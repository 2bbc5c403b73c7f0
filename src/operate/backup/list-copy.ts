import path from 'node:path';
import { describeError, isAppError, isSystemError } from '../../runtime/errors.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import { findNames, listTree } from '../../runtime/files/folder-names.ts';
import { listMissingRecords } from '../../runtime/files/known-records.ts';
import { findRecord, listRecords, recordPath } from '../../runtime/files/recorded-file.ts';
import type { Logger } from '../../runtime/logger.ts';
import { listSegmentAccounts, withSegmentsLock } from '../../segments/segment-store.ts';
import { withTitlesLock } from '../../titles/title-store.ts';
import type { BackupFolder } from './backup-folder.ts';
import type { BackupFile } from './backup-manifest.ts';

export interface ListPaths {
  readonly segments: string;
  readonly titles: string;
  readonly webhooks: string;
  readonly schedules: string;
}

/** Folder of the operator's datasets in a backup and in the data folder that is restored from it. */
const datasetsPlace = 'datasets';

/** Says whether an error is that of a record or a file, rather than that of a disk or of the backup. */
function isDamage(error: unknown): boolean {
  if (isAppError(error)) return error.code === 'file_damaged';
  // A record that is damaged is a plain error.
  return isSystemError(error, 'ENOENT') || !(error instanceof Error && 'code' in error);
}

/**
 * Copies the records of a folder and their files; `place` is its path below the data folder. A file that is damaged or
 * missing is left out and reported, so that the rest does not suffer for it; its record says what it was.
 */
async function copyRecords(target: BackupFolder, folder: string, place: string, logger: Logger): Promise<BackupFile[]> {
  const files: BackupFile[] = [];
  for (const name of await listRecords(folder)) {
    const record = recordPath(folder, name);
    try {
      const found = await findRecord(folder, name);
      if (found === undefined) continue;
      const { file, sizeBytes: size, sha256 } = found;
      files.push({ path: path.posix.join(place, path.basename(file)), ...(await target.put(file, { sha256, size })) });
    } catch (error) {
      if (!isDamage(error)) throw error;
      logger.warn({ record, error: describeError(error) }, 'a list is damaged, and its file is not in the backup');
    }
    files.push({ path: path.posix.join(place, path.basename(record)), ...(await target.put(record)) });
  }
  return files;
}

/**
 * Keeps what the backup in force has of records that are missing in the data folder. `copied` is what this run has copied
 * of lists.
 */
export async function keepMissing(
  { manifest }: BackupFolder,
  dataDir: string,
  copied: readonly BackupFile[],
): Promise<BackupFile[]> {
  const missing = await listMissingRecords(dataDir);
  const stems = missing.map((name) => name.split(path.sep).join('/').slice(0, -'.json'.length));
  return (manifest?.files ?? []).filter(
    (file) =>
      stems.some((stem) => file.path.startsWith(`${stem}.`) || file.path.startsWith(`${stem}-`)) &&
      !copied.some((known) => known.path === file.path),
  );
}

/** Copies the records that accounts have in folders of their own: each whole or not there. */
async function copyAccountRecords(target: BackupFolder, records: string): Promise<BackupFile[]> {
  const files: BackupFile[] = [];
  for (const account of await findNames(records)) {
    for (const name of await findNames(path.join(records, account))) {
      if (!name.endsWith('.json')) continue;
      const place = path.posix.join(path.basename(records), account, name);
      try {
        files.push({ path: place, ...(await target.put(path.join(records, account, name))) });
      } catch (error) {
        // Removed meanwhile.
        if (!isSystemError(error, 'ENOENT')) throw error;
      }
    }
  }
  return files;
}

/**
 * Copies the operator's datasets, wherever they lie, to where a restored service reads them. While no pipeline names a
 * table of the lake (`isAnyMissing`), the files that the backup has from before stay in it.
 */
export async function copyDatasets(
  target: BackupFolder,
  datasetsDir: string,
  isAnyMissing: boolean,
): Promise<BackupFile[]> {
  const files: BackupFile[] = [];
  for (const name of (await exists(datasetsDir)) ? await listTree(datasetsDir) : []) {
    if (!name.endsWith('.json')) continue;
    const place = path.posix.join(datasetsPlace, name.split(path.sep).join('/'));
    files.push({ path: place, ...(await target.put(path.join(datasetsDir, name))) });
  }
  const earlier = isAnyMissing ? (target.manifest?.files ?? []) : [];
  const kept = earlier.filter(
    (file) => file.path.startsWith(`${datasetsPlace}/`) && !files.some((known) => known.path === file.path),
  );
  return [...files, ...kept];
}

/**
 * Copies the schedules. To be done before the export requests: a slot whose request the backup has not must not be known
 * as made, and one whose request it has is found by it.
 */
export async function copySchedules(
  target: BackupFolder,
  { schedules }: Pick<ListPaths, 'schedules'>,
): Promise<BackupFile[]> {
  return await copyAccountRecords(target, schedules);
}

/**
 * Copies the segments and the titles, each as they are at one moment, under the lock of whoever changes them; and the
 * webhooks.
 */
export async function copyLists(
  target: BackupFolder,
  { segments, titles, webhooks }: Omit<ListPaths, 'schedules'>,
  logger: Logger,
): Promise<BackupFile[]> {
  const files: BackupFile[] = await copyAccountRecords(target, webhooks);
  if (await exists(segments))
    await withSegmentsLock(segments, 'a backup', async () => {
      for (const account of await listSegmentAccounts(segments)) {
        const place = path.posix.join(path.basename(segments), String(account));
        files.push(...(await copyRecords(target, path.join(segments, String(account)), place, logger)));
      }
    });
  if (await exists(titles))
    await withTitlesLock(titles, 'a backup', async () => {
      files.push(...(await copyRecords(target, titles, path.basename(titles), logger)));
    });
  return files;
}
