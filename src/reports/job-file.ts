import path from 'node:path';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { findTextFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { AppError } from '../runtime/errors.ts';
import { isCount, isReportBasis, isReportFile, isReportSlot, type ReportJob } from './reports.ts';

const states = ['queued', 'running', 'success', 'failed', 'user_failed', 'canceled'];

function isReportJob(value: unknown, id: number): value is ReportJob {
  const job = value as Partial<ReportJob> | null;
  if (typeof job !== 'object' || job === null || job.id !== id) return false;
  const known =
    states.includes(String(job.state)) &&
    isCount(job.attempts) &&
    isCount(job.interruptions ?? 0) &&
    isCount(job.createdMs) &&
    isCount(job.idAccount);
  const named =
    typeof job.idUser === 'string' && /^\w+$/.test(String(job.event)) && /^[0-9a-f]{32}$/.test(String(job.nonce));
  const ended =
    job.state === 'queued' || job.state === 'running' || (isCount(job.finishedMs) && isCount(job.expiresSeconds));
  const whole = job.state !== 'success' || (Array.isArray(job.files) && job.files.every(isReportFile));
  const based = job.basis === undefined || isReportBasis(job.basis);
  const placed = job.slot === undefined || isReportSlot(job.slot);
  return known && named && ended && whole && based && placed && typeof job.request === 'object' && job.request !== null;
}

/** Path of a request's job.json. */
export function jobPath(folder: string): string {
  return path.join(folder, 'job.json');
}

const hint =
  'Restore it from a backup, or remove the file and let the user order the export again: the next start clears the rest away.';

/**
 * Reads a request's job.json; undefined when there is none. Errors: `report_damaged` when it is not what was written.
 */
export async function findJobFile(folder: string, id: number): Promise<ReportJob | undefined> {
  const text = await findTextFile(jobPath(folder));
  if (text === undefined) return undefined;
  let record: Readonly<Record<string, unknown>>;
  try {
    record = parseChecked(text);
  } catch (error) {
    throw new AppError('report_damaged', `${jobPath(folder)} is damaged`, { cause: error, hint });
  }
  const { version, ...job } = record;
  if (![1, 2].includes(version as number) || !isReportJob(job, id))
    throw new AppError('report_damaged', `${jobPath(folder)} is not an export request`, { hint });
  return job;
}

/** Writes a request's job.json whole: durable when it returns. */
export async function writeJobFile(folder: string, job: ReportJob): Promise<void> {
  await writeFileDurably(jobPath(folder), renderChecked({ ...job }));
}
