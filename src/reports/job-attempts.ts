import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { KeyedSemaphore } from '../runtime/async/semaphore.ts';
import type { Clock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { syncFolder } from '../runtime/files/durable-file.ts';
import type { JobRecords } from './job-records.ts';
import { attemptPrefix, endedAttempts, isInProgress, partsFolder, type ReportEnd, type ReportJob } from './reports.ts';

/** What an attempt without a result counts as: the request's own failure, an interruption from outside, or nothing. */
export type AttemptEnd = 'failure' | 'interruption' | 'nothing';

/** The attempts of the requests at rest, up to the one end of each. */
export interface JobAttempts {
  /**
   * Records the begin of an attempt, durably, and makes its empty folder; returns both. One that had begun and was
   * never released has been interrupted. Throws `conflict` on a request that has ended.
   */
  beginAttempt(id: number): Promise<{ job: ReportJob; folder: string }>;
  /**
   * Ends a request, once: publishes the attempt's folder as the request's files (`success`) or removes what is left,
   * then writes job.json. Returns the request as it is afterwards: of two ends, the first stays.
   */
  end(id: number, end: ReportEnd, attemptFolder?: string): Promise<ReportJob>;
  /** Takes back an attempt that gave no result: removes its folder; the request waits again. */
  releaseAttempt(id: number, folder: string, as: AttemptEnd): Promise<void>;
}

export interface JobAttemptsDependencies {
  readonly records: JobRecords;
  /** Held by whoever changes a request, by its id. */
  readonly mutex: KeyedSemaphore;
  readonly clock: Clock;
  /** How long the links of a request live after its end. */
  readonly linkTtlSeconds: number;
  /** Called with each request that has ended, after its end is durable. */
  readonly onEnd: (id: number) => void;
}

/** The request with the attempt under way, if one is, counted as interrupted. */
function countInterruption(job: ReportJob): ReportJob {
  return job.state === 'running' ? { ...job, interruptions: (job.interruptions ?? 0) + 1 } : job;
}

async function removeAttempts(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name.startsWith(attemptPrefix));
  for (const name of names) await rm(path.join(folder, name), { recursive: true, force: true });
}

/** Makes the attempt's folder the request's files. What an earlier try at this very step left is replaced. */
async function publish(folder: string, attemptFolder: string): Promise<void> {
  const parts = path.join(folder, partsFolder);
  await rm(parts, { recursive: true, force: true });
  await rename(attemptFolder, parts);
  await syncFolder(folder);
}

/** Creates the attempts over a store's records. The changes of one request are made one after the other. */
export function createJobAttempts(dependencies: JobAttemptsDependencies): JobAttempts {
  const { records, mutex, clock, linkTtlSeconds, onEnd } = dependencies;

  async function begin(id: number): Promise<{ job: ReportJob; folder: string }> {
    const open = records.find(id);
    if (open === undefined || !isInProgress(open)) throw new AppError('conflict', `export request ${id} has ended`);
    const job = await records.save({
      ...countInterruption(open),
      state: 'running',
      attempts: endedAttempts(open) + 1,
    });
    await removeAttempts(records.folderOf(id));
    const folder = path.join(records.folderOf(id), `${attemptPrefix}${job.attempts + (job.interruptions ?? 0)}`);
    await mkdir(folder, { mode: 0o700 });
    return { job, folder };
  }

  async function end(id: number, how: ReportEnd, attemptFolder: string | undefined): Promise<ReportJob> {
    const job = records.find(id);
    if (job === undefined) throw new AppError('not_found', `there is no export request ${id}`);
    if (!isInProgress(job)) {
      if (attemptFolder !== undefined) await rm(attemptFolder, { recursive: true, force: true });
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
    await rm(folder, { recursive: true, force: true });
    const job = records.find(id);
    if (job?.state !== 'running') return;
    if (as === 'failure') await records.save({ ...job, state: 'queued' });
    else {
      const counted = as === 'interruption' ? countInterruption(job) : job;
      await records.save({ ...counted, state: 'queued', attempts: endedAttempts(job) });
    }
  }

  return {
    beginAttempt: (id) => mutex.run(id, () => begin(id)),
    end: (id, how, attemptFolder) => mutex.run(id, () => end(id, how, attemptFolder)),
    releaseAttempt: (id, folder, as) => mutex.run(id, () => release(id, folder, as)),
  };
}
