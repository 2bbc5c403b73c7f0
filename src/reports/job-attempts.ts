import path from 'node:path';
import type { KeyedSemaphore } from '../runtime/async/semaphore.ts';
import type { Clock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { moveFile, syncFolder } from '../runtime/files/durable-file.ts';
import { listNames } from '../runtime/files/folder-names.ts';
import { makeWorkFolder, removeTree } from '../runtime/files/work-files.ts';
import type { JobRecords } from './job-records.ts';
import { attemptPrefix, endedAttempts, isInProgress, partsFolder, type ReportEnd, type ReportJob } from './reports.ts';

/** How an attempt without a result counts: as the request's own failure, an interruption from outside, or nothing. */
export type AttemptEnd = 'failure' | 'interruption' | 'nothing';

interface JobAttemptsDependencies {
  readonly records: JobRecords;
  /** Serializes the changes of a request, by its id. */
  readonly mutex: KeyedSemaphore;
  readonly clock: Clock;
  readonly linkTtlSeconds: number;
  readonly onEnd: (id: number) => void;
}

function countInterruption(job: ReportJob): ReportJob {
  return job.state === 'running' ? { ...job, interruptions: (job.interruptions ?? 0) + 1 } : job;
}

/** Renames an attempt's folder to the request's files, and removes leftovers of an interrupted publication. */
async function publish(folder: string, attemptFolder: string): Promise<void> {
  const parts = path.join(folder, partsFolder);
  await removeTree(parts);
  await moveFile(attemptFolder, parts);
  await syncFolder(folder);
}

/** Creates the attempts of export requests. The changes of one request are made one after the other. */
export function createJobAttempts(dependencies: JobAttemptsDependencies) {
  const { records, mutex, clock, linkTtlSeconds, onEnd } = dependencies;
  const attemptFolderOf = ({ id, attempts, interruptions = 0 }: ReportJob): string =>
    path.join(records.folderOf(id), `${attemptPrefix}${attempts + interruptions}`);
  /** An attempt ends when it is released or the next one begins, even if its worker exits later. */
  const isUnderWay = (job: ReportJob, folder: string): boolean =>
    job.state === 'running' && folder === attemptFolderOf(job);

  async function begin(id: number): Promise<{ job: ReportJob; folder: string }> {
    const open = records.find(id);
    if (open === undefined || !isInProgress(open)) throw new AppError('conflict', `export request ${id} has ended`);
    const attempts = endedAttempts(open) + 1;
    const job = await records.save({ ...countInterruption(open), state: 'running', attempts });
    const requestFolder = records.folderOf(id);
    for (const name of await listNames(requestFolder))
      if (name.startsWith(attemptPrefix)) await removeTree(path.join(requestFolder, name));
    const folder = attemptFolderOf(job);
    await makeWorkFolder(folder);
    return { job, folder };
  }

  async function end(id: number, how: ReportEnd, attemptFolder: string | undefined): Promise<ReportJob> {
    const job = records.find(id);
    if (job === undefined) throw new AppError('not_found', `export request ${id} not found`);
    if (!isInProgress(job) || (attemptFolder !== undefined && !isUnderWay(job, attemptFolder))) {
      if (attemptFolder !== undefined) await removeTree(attemptFolder);
      return job;
    }
    if (how.state === 'success' && attemptFolder !== undefined) await publish(records.folderOf(id), attemptFolder);
    const finishedMs = clock.nowMs();
    const expiresSeconds = Math.floor(finishedMs / 1000) + linkTtlSeconds;
    const ended = await records.save({ ...job, ...how, finishedMs, expiresSeconds });
    onEnd(id);
    return ended;
  }

  async function release(id: number, folder: string, as: AttemptEnd): Promise<void> {
    await removeTree(folder);
    const job = records.find(id);
    if (job === undefined || !isUnderWay(job, folder)) return;
    const counted = as === 'interruption' ? countInterruption(job) : job;
    await records.save({ ...counted, state: 'queued', attempts: as === 'failure' ? job.attempts : endedAttempts(job) });
  }

  return {
    /** Starts an attempt, durably. An unreleased earlier one counts as interrupted. Error: `conflict` if ended. */
    beginAttempt: (id: number): Promise<{ job: ReportJob; folder: string }> => mutex.run(id, () => begin(id)),
    /**
     * Ends a request: publishes the attempt's folder as the request's files if it succeeded, then writes job.json.
     * Returns the request afterwards: of two ends, the first stays, and of attempts only the current one counts.
     */
    end: (id: number, how: ReportEnd, attemptFolder?: string): Promise<ReportJob> =>
      mutex.run(id, () => end(id, how, attemptFolder)),
    /** Removes the folder of an attempt without a result; the request is queued again. */
    releaseAttempt: (id: number, folder: string, as: AttemptEnd): Promise<void> =>
      mutex.run(id, () => release(id, folder, as)),
  };
}
