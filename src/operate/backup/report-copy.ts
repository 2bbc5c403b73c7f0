import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { deliveriesPath } from '../../reports/deliveries-file.ts';
import { highestIdPath } from '../../reports/highest-id.ts';
import { findJobFile, jobPath } from '../../reports/job-file.ts';
import { isInProgress, partsFolder, type ReportJob } from '../../reports/reports.ts';
import { AppError, describeError, isAppError, isSystemError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { BackupFolder } from './backup-folder.ts';
import type { BackupFile } from './backup-manifest.ts';

export interface ReportCopyOptions {
  readonly reportsDir: string;
  readonly signal: AbortSignal;
  readonly logger: Logger;
}

/** A request may change, or end, while it is copied. */
const attempts = 5;

async function listIds(reportsDir: string): Promise<number[]> {
  try {
    const names = await readdir(reportsDir);
    return names
      .filter((name) => /^[1-9]\d{0,14}$/.test(name))
      .map(Number)
      .toSorted((a, b) => a - b);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return [];
    throw error;
  }
}

/**
 * Copies the files of a request that has ended well. One that is damaged is left out and reported: the others are not
 * to suffer for it.
 */
async function copyParts(folder: string, job: ReportJob, target: BackupFolder, logger: Logger): Promise<BackupFile[]> {
  const copied: BackupFile[] = [];
  for (const { name, bytes, sha256 } of job.state === 'success' ? (job.files ?? []) : []) {
    try {
      copied.push({
        path: path.posix.join('reports', String(job.id), partsFolder, name),
        ...(await target.put(path.join(folder, partsFolder, name), { sha256, size: bytes })),
      });
    } catch (error) {
      if (!isAppError(error, 'file_damaged')) throw error;
      logger.warn({ idReport: job.id, error: describeError(error) }, 'report file is damaged and not in the backup');
    }
  }
  return copied;
}

/**
 * Copies who was told of the end of a request, so that a restore does not tell all of them anew. Of one that had not ended
 * yet nobody was: in a restored folder it ends once more.
 */
async function copyDeliveries(folder: string, job: ReportJob, target: BackupFolder): Promise<BackupFile[]> {
  if (isInProgress(job)) return [];
  const file = deliveriesPath(folder);
  try {
    return [{ path: path.posix.join('reports', String(job.id), path.basename(file)), ...(await target.put(file)) }];
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return [];
    throw error;
  }
}

/**
 * Copies a request as it stands; nothing when it is gone. A record that is damaged is copied as it is, for the service
 * reports it.
 */
async function copyReport(
  id: number,
  target: BackupFolder,
  { reportsDir, logger }: ReportCopyOptions,
): Promise<BackupFile[]> {
  const folder = path.join(reportsDir, String(id));
  const record = path.posix.join('reports', String(id), 'job.json');
  const find = (): Promise<ReportJob | undefined> => findJobFile(folder, id);
  for (let attempt = 1; ; attempt += 1) {
    try {
      const job = await find();
      if (job === undefined) return [];
      const parts = await copyParts(folder, job, target, logger);
      const stored = await target.put(jobPath(folder));
      const deliveries = await copyDeliveries(folder, job, target);
      if (JSON.stringify(await find()) === JSON.stringify(job))
        return [...parts, { path: record, ...stored }, ...deliveries];
    } catch (error) {
      if (isAppError(error, 'report_damaged')) {
        logger.warn(
          { idReport: id, error: describeError(error) },
          'export request is damaged: the backup has it as it is',
        );
        return [{ path: record, ...(await target.put(jobPath(folder))) }];
      }
      if (!isSystemError(error, 'ENOENT')) throw error;
      if (attempt === attempts) {
        logger.warn(
          { idReport: id, error: describeError(error) },
          'files of a report are missing, and not in the backup',
        );
        return (await find()) === undefined ? [] : [{ path: record, ...(await target.put(jobPath(folder))) }];
      }
    }
  }
}

/**
 * Copies the export requests and their files, while the service runs. Work in hand is not copied: a restored request
 * begins it anew.
 */
export async function copyReports(target: BackupFolder, options: ReportCopyOptions): Promise<BackupFile[]> {
  const files: BackupFile[] = [];
  for (const id of await listIds(options.reportsDir)) {
    if (options.signal.aborted)
      throw new AppError('stopping', 'the backup was stopped', { hint: 'One that the folder held before is whole.' });
    files.push(...(await copyReport(id, target, options)));
  }
  // Last: no id that was given out before may be given out again.
  const highest = highestIdPath(options.reportsDir);
  try {
    files.push({ path: path.posix.join('reports', path.basename(highest)), ...(await target.put(highest)) });
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
  }
  return files;
}
