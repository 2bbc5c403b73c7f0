import { readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { findJobFile } from './job-file.ts';
import { progressName } from './progress-notes.ts';
import { isInProgress, partsFolder, type ReportJob } from './reports.ts';

/** What the name of an attempt's folder begins with. */
export const attemptPrefix = 'attempt-';

function isLeftover(name: string, job: ReportJob): boolean {
  if (name === partsFolder) return job.state !== 'success';
  if (name === progressName) return !isInProgress(job);
  return name.startsWith(attemptPrefix) || name.endsWith('.tmp');
}

/**
 * Reads the request that an earlier process has left in a folder, and removes what a crash may have left beside it:
 * attempts, unpublished parts, temporaries. Undefined when there is no request in it. No attempt of the
 * request may be running. Errors: `report_damaged`.
 */
export async function recoverJob(folder: string, id: number): Promise<ReportJob | undefined> {
  const job = await findJobFile(folder, id);
  if (job === undefined) return undefined;
  for (const name of await readdir(folder)) {
    if (isLeftover(name, job)) await rm(path.join(folder, name), { recursive: true, force: true });
  }
  return job;
}
