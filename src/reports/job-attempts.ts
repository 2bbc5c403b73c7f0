import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { inParallel } from '../runtime/async/in-parallel.ts';
import type { Clock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { findNames } from '../runtime/files/folder-names.ts';
import { makeFolder } from '../runtime/files/make-folder.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import type { ObjectStore } from '../runtime/store/object-store.ts';
import type { Jobs } from './jobs.ts';
import { attemptPartsPrefix, partKey } from './report-records.ts';
import {
  attemptPrefix,
  endedAttempts,
  isInProgress,
  type ReportEnd,
  type ReportFile,
  type ReportJob,
} from './reports.ts';

/** How an attempt without a result counts: as the request's own failure, an interruption from outside, or nothing. */
export type AttemptEnd = 'failure' | 'interruption' | 'nothing';

interface JobAttemptsDependencies {
  readonly jobs: Jobs;
  readonly objects: ObjectStore;
  /** Folder of the work files. */
  readonly reportsDir: string;
  readonly clock: Clock;
  readonly linkTtlSeconds: number;
  readonly onEnd: (id: number) => Promise<void>;
}

/** Concurrent uploads. */
const width = 4;

function countInterruption(job: ReportJob): ReportJob {
  return job.state === 'running' ? { ...job, interruptions: (job.interruptions ?? 0) + 1 } : job;
}

/** Creates the attempts of export requests. The changes of one request are made one after the other. */
export function createJobAttempts(dependencies: JobAttemptsDependencies) {
  const { jobs, objects, reportsDir, clock, linkTtlSeconds, onEnd } = dependencies;
  const attemptFolderOf = ({ id, attempts, interruptions = 0 }: ReportJob): string =>
    path.join(reportsDir, String(id), `${attemptPrefix}${attempts + interruptions}`);
  /** An attempt ends when it is released or the next one begins, even if its worker exits later. */
  const isUnderWay = (job: ReportJob, folder: string): boolean =>
    job.state === 'running' && folder === attemptFolderOf(job);

  async function begin(id: number): Promise<{ job: ReportJob; folder: string }> {
    // Attempts on other hosts must not write the same objects.
    const shared = objects.isShared ? { attemptNonce: randomBytes(8).toString('hex') } : {};
    const job = await jobs.change(id, (open) =>
      isInProgress(open)
        ? { ...countInterruption(open), state: 'running', attempts: endedAttempts(open) + 1, ...shared }
        : open,
    );
    if (job === undefined || !isInProgress(job)) throw new AppError('conflict', `export request ${id} has ended`);
    const folder = attemptFolderOf(job);
    const requestFolder = path.dirname(folder);
    for (const name of await findNames(requestFolder))
      if (name.startsWith(attemptPrefix)) await removeTree(path.join(requestFolder, name));
    await makeFolder(folder);
    return { job, folder };
  }

  /** Uploads the files of an attempt, after what an interrupted upload left at their prefix was removed. */
  async function upload(job: ReportJob, files: readonly ReportFile[], folder: string): Promise<void> {
    await objects.remove(await objects.list(attemptPartsPrefix(job)));
    await inParallel(files, width, ({ name, sha256 }) =>
      objects.upload(partKey(job, name), path.join(folder, name), { sha256 }),
    );
  }

  async function end(id: number, how: ReportEnd, attemptFolder: string | undefined): Promise<ReportJob> {
    const isOpen = (job: ReportJob): boolean =>
      isInProgress(job) && (attemptFolder === undefined || isUnderWay(job, attemptFolder));
    const before = jobs.lastRead(id);
    let job = before;
    if (before !== undefined && isOpen(before)) {
      const hasFiles = how.state === 'success' && attemptFolder !== undefined;
      if (hasFiles) await upload(before, how.files, attemptFolder);
      const finishedMs = clock.nowMs();
      const expiresSeconds = Math.floor(finishedMs / 1000) + linkTtlSeconds;
      const isCurrent = (open: ReportJob): boolean =>
        isOpen(open) && (!hasFiles || open.attemptNonce === before.attemptNonce);
      job = await jobs.change(id, (open) => (isCurrent(open) ? { ...open, ...how, finishedMs, expiresSeconds } : open));
      // Another host has begun another attempt meanwhile.
      if (hasFiles && objects.isShared && job?.attemptNonce !== before.attemptNonce)
        await objects.remove(await objects.list(attemptPartsPrefix(before)));
      await onEnd(id);
    }
    if (job === undefined) throw new AppError('not_found', `export request ${id} not found`);
    // What stays is removed by the next start.
    if (attemptFolder !== undefined) await removeTree(attemptFolder).catch(() => undefined);
    return job;
  }

  async function release(id: number, folder: string, as: AttemptEnd): Promise<void> {
    await removeTree(folder);
    await jobs.change(id, (job) => {
      if (!isUnderWay(job, folder)) return job;
      const counted = as === 'interruption' ? countInterruption(job) : job;
      return { ...counted, state: 'queued', attempts: as === 'failure' ? job.attempts : endedAttempts(job) };
    });
  }

  return {
    /** Starts an attempt, durably. An unreleased earlier one counts as interrupted. Error: `conflict` if ended. */
    beginAttempt: (id: number): Promise<{ job: ReportJob; folder: string }> => jobs.inTurn(id, () => begin(id)),
    /**
     * Ends a request: uploads the attempt's files as the request's parts if it succeeded, then writes job.json.
     * Returns the request afterwards: of two ends, the first stays, and of attempts only the current one counts.
     */
    end: (id: number, how: ReportEnd, attemptFolder?: string): Promise<ReportJob> =>
      jobs.inTurn(id, () => end(id, how, attemptFolder)),
    /** Removes the folder of an attempt without a result; the request is queued again. */
    releaseAttempt: (id: number, folder: string, as: AttemptEnd): Promise<void> =>
      jobs.inTurn(id, () => release(id, folder, as)),
  };
}
