import path from 'node:path';
import type { AccessPaths } from '../../access/access-file.ts';
import { isSystemError, describeError, isAppError } from '../../runtime/errors.ts';
import { waitForLock } from '../../runtime/files/lock.ts';
import { throwIfStopped, type BackupFolder } from './backup-folder.ts';
import type { BackupFile } from './backup-manifest.ts';
import {
  deliveriesKey,
  highestIdKey,
  jobKey,
  listReportIds,
  openJobRecords,
  partKey,
} from '../../reports/report-records.ts';
import { isInProgress, type ReportJob } from '../../reports/reports.ts';
import type { Logger } from '../../runtime/logger.ts';
import { exists, isRegularFile } from '../../runtime/files/file-checks.ts';
import { findFolders, findNames, listNames, listTree } from '../../runtime/files/folder-names.ts';
import type { FileRecords } from '../../runtime/store/file-records.ts';
import { listMissingRecords } from '../../runtime/store/marked-records.ts';
import type { ObjectStore } from '../../runtime/store/object-store.ts';
import { openStore } from '../../runtime/store/open-store.ts';
import { openSegments } from '../../segments/segment-store.ts';
import { openTitles } from '../../titles/title-store.ts';

const lockWaitMs = 30_000;

/** Copies the access data and its keys as of one moment, under the lock of their writers. */
export async function copyAccess(target: BackupFolder, { access, keys }: AccessPaths): Promise<BackupFile[]> {
  if (!(await exists(keys))) return [];
  const lock = await waitForLock(keys, 'a backup', lockWaitMs);
  try {
    const files = await target.putIfThere(path.basename(access), access);
    // All keys, also of later versions; not temporaries or the lock's file.
    const names = (await listNames(keys)).filter((name) => !name.startsWith('.') && !name.endsWith('.tmp'));
    for (const name of names)
      if (await isRegularFile(path.join(keys, name)))
        files.push(await target.put(path.posix.join(path.basename(keys), name), path.join(keys, name)));
    return files;
  } finally {
    lock.release();
  }
}

interface ReportCopyOptions {
  readonly reportsDir: string;
  readonly signal: AbortSignal;
  readonly logger: Logger;
}

const attempts = 5;

const backupPathOf = (key: string): string => path.posix.join('reports', key);

/** Copies the files of a successful request; leaves damaged ones out and reports them. */
async function copyParts(
  objects: ObjectStore,
  job: ReportJob,
  target: BackupFolder,
  logger: Logger,
): Promise<BackupFile[]> {
  const copied: BackupFile[] = [];
  for (const { name, bytes, sha256 } of job.state === 'success' ? (job.files ?? []) : []) {
    const key = partKey(job, name);
    try {
      copied.push(await target.put(backupPathOf(key), objects.nameOf(key), { sha256, size: bytes }));
    } catch (error) {
      if (!isAppError(error, 'file_damaged')) throw error;
      logger.warn({ idReport: job.id, error: describeError(error) }, 'damaged report file left out of the backup');
    }
  }
  return copied;
}

/** Copies a request; nothing if it was removed. A damaged record is copied too: the service reports it. */
async function copyReport(
  id: number,
  target: BackupFolder,
  objects: ObjectStore,
  logger: Logger,
): Promise<BackupFile[]> {
  const find = (): Promise<ReportJob | undefined> => openJobRecords(objects).get(String(id));
  const deliveriesOf = deliveriesKey(id);
  const copyRecord = (): Promise<BackupFile> => target.put(backupPathOf(jobKey(id)), objects.nameOf(jobKey(id)));
  for (let attempt = 1; ; attempt += 1) {
    try {
      const job = await find();
      if (job === undefined) return [];
      const parts = await copyParts(objects, job, target, logger);
      const stored = await copyRecord();
      // With its deliveries, so that a restore does not repeat them.
      const deliveries = isInProgress(job)
        ? []
        : await target.putIfThere(backupPathOf(deliveriesOf), objects.nameOf(deliveriesOf));
      if (JSON.stringify(await find()) === JSON.stringify(job)) return [...parts, stored, ...deliveries];
    } catch (error) {
      if (isAppError(error, 'report_damaged')) {
        logger.warn({ idReport: id, error: describeError(error) }, 'damaged export request copied unchanged');
        return [await copyRecord()];
      }
      if (!isSystemError(error, 'ENOENT')) throw error;
      if (attempt === attempts) {
        logger.warn({ idReport: id, error: describeError(error) }, 'missing report files left out of the backup');
        return (await find()) === undefined ? [] : [await copyRecord()];
      }
    }
  }
}

/** Copies export requests and their files. Work in progress is not copied: restored requests start over. */
export async function copyReports(
  target: BackupFolder,
  { reportsDir, signal, logger }: ReportCopyOptions,
): Promise<BackupFile[]> {
  const objects = openStore(reportsDir);
  const files: BackupFile[] = [];
  for (const id of await listReportIds(objects)) {
    throwIfStopped(signal);
    files.push(...(await copyReport(id, target, objects, logger)));
  }
  // Last: no earlier id may be assigned again.
  return [...files, ...(await target.putIfThere(backupPathOf(highestIdKey), objects.nameOf(highestIdKey)))];
}

export interface ListPaths {
  readonly segments: string;
  readonly titles: string;
  readonly webhooks: string;
  readonly destinations: string;
  readonly schedules: string;
}

/** Folder of the operator's datasets in a backup and in a restored data folder. */
const datasetsBackupPath = 'datasets';

/** Reports whether an error concerns a single record or file. */
function isDamage(error: unknown): boolean {
  return isAppError(error, 'file_damaged') || isAppError(error, 'record_damaged') || isSystemError(error, 'ENOENT');
}

/** Copies the records of a folder and their files as of one moment. Leaves damaged files out and reports them. */
async function copyRecords(
  target: BackupFolder,
  folder: string,
  records: Pick<FileRecords<object>, 'ids' | 'get' | 'nameOf' | 'hold'>,
  logger: Logger,
): Promise<BackupFile[]> {
  if (!(await exists(folder))) return [];
  const files: BackupFile[] = [];
  await records.hold(async () => {
    for (const id of await records.ids()) {
      const record = records.nameOf(id);
      const backupPath = path.posix.join(path.basename(folder), path.posix.dirname(id));
      try {
        const found = await records.get(id);
        if (found === undefined) continue;
        const { absolutePath: file, sizeBytes: size, sha256 } = found;
        files.push(await target.put(path.posix.join(backupPath, path.basename(file)), file, { sha256, size }));
      } catch (error) {
        if (!isDamage(error)) throw error;
        logger.warn({ record, error: describeError(error) }, 'damaged list left out of the backup');
      }
      files.push(await target.put(path.posix.join(backupPath, path.basename(record)), record));
    }
  });
  return files;
}

/** Keeps the previous backup's records that the data folder lacks. `copied`: the lists of this run. */
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

/** Copies the files of a suffix in the subfolders of a folder, such as the records of accounts. */
async function copySubfolders(target: BackupFolder, folder: string, suffix = '.json'): Promise<BackupFile[]> {
  const files: BackupFile[] = [];
  for (const subfolder of await findFolders(folder)) {
    for (const name of await findNames(path.join(folder, subfolder))) {
      if (!name.endsWith(suffix)) continue;
      const backupPath = path.posix.join(path.basename(folder), subfolder, name);
      files.push(...(await target.putIfThere(backupPath, path.join(folder, subfolder, name))));
    }
  }
  return files;
}

/** Copies the audit log. Files that grow meanwhile are copied up to some line. */
export function copyAudit(target: BackupFolder, { audit }: { readonly audit: string }): Promise<BackupFile[]> {
  return copySubfolders(target, audit, '.ndjson');
}

/**
 * Copies the operator's datasets. If a table of the lake has no pipeline (`isAnyMissing`), keeps those of the previous
 * backup.
 */
export async function copyDatasets(
  target: BackupFolder,
  datasetsDir: string,
  isAnyMissing: boolean,
): Promise<BackupFile[]> {
  const files: BackupFile[] = [];
  for (const name of (await exists(datasetsDir)) ? await listTree(datasetsDir) : []) {
    if (!name.endsWith('.json')) continue;
    const backupPath = path.posix.join(datasetsBackupPath, name.split(path.sep).join('/'));
    files.push(await target.put(backupPath, path.join(datasetsDir, name)));
  }
  const earlier = isAnyMissing ? (target.manifest?.files ?? []) : [];
  const carriedOver = earlier.filter(
    (file) => file.path.startsWith(`${datasetsBackupPath}/`) && !files.some((known) => known.path === file.path),
  );
  return [...files, ...carriedOver];
}

/** Copies the schedules. Before the export requests: a slot without a copied request must not count as done. */
export function copySchedules(target: BackupFolder, { schedules }: Pick<ListPaths, 'schedules'>) {
  return copySubfolders(target, schedules);
}

export async function copyLists(
  target: BackupFolder,
  { segments, titles, webhooks, destinations }: Omit<ListPaths, 'schedules'>,
  logger: Logger,
): Promise<BackupFile[]> {
  return [
    ...(await copySubfolders(target, webhooks)),
    ...(await copySubfolders(target, destinations)),
    ...(await copyRecords(target, segments, openSegments(segments), logger)),
    ...(await copyRecords(target, titles, openTitles(titles), logger)),
  ];
}
