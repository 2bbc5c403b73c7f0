import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { inParallel } from '../runtime/async/in-parallel.ts';
import type { Clock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { defined } from '../runtime/files/checksummed-json.ts';
import { removeEmptyFolder } from '../runtime/files/durable-file.ts';
import { findNames } from '../runtime/files/folder-names.ts';
import { makeFolder } from '../runtime/files/make-folder.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import type { ObjectStore } from '../runtime/store/object-store.ts';
import type { Jobs } from './jobs.ts';
import { attemptPartsPrefix, partKey, partsPrefix } from './report-records.ts';
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

/** A request after an end. */
interface EndedReport {
  readonly job: ReportJob;
  /** Whether this end is the request's. */
  readonly isOwn: boolean;
}

function countInterruption(job: ReportJob): ReportJob {
  return job.state === 'running' ? { ...job, interruptions: (job.interruptions ?? 0) + 1 } : job;
}

/** Counts an attempt that has ended without a result. */
function countAttempt(job: ReportJob, as: AttemptEnd): ReportJob {
  const counted = as === 'interruption' ? countInterruption(job) : job;
  return { ...counted, attempts: as === 'failure' ? job.attempts : endedAttempts(job) };
}

/**
 * Creates the attempts of export requests. The changes of one request are made one after the other. In a shared store,
 * other hosts make some too: each attempt has a nonce, and one that was overtaken changes neither the record nor the
 * files of the current one.
 */
export function createJobAttempts(dependencies: JobAttemptsDependencies) {
  const { jobs, objects, reportsDir, clock, linkTtlSeconds, onEnd } = dependencies;
  const attemptFolderOf = ({ id, attempts, interruptions = 0, attemptNonce }: ReportJob): string =>
    path.join(reportsDir, String(id), `${attemptPrefix}${attemptNonce ?? attempts + interruptions}`);
  /** Removes the folder of an attempt, and that of its request if that is not its store. */
  async function removeWork(folder: string): Promise<void> {
    await removeTree(folder);
    if (objects.isShared) await removeEmptyFolder(path.dirname(folder));
  }
  /** An attempt ends when it is released or the next one begins, even if its worker exits later. */
  const isUnderWay = (job: ReportJob, folder: string): boolean =>
    job.state === 'running' && folder === attemptFolderOf(job);

  async function begin(id: number): Promise<{ job: ReportJob; folder: string }> {
    // Attempts on other hosts must not write the same objects.
    const attemptNonce = objects.isShared ? randomBytes(8).toString('hex') : undefined;
    const job = await jobs.change(id, (open) => {
      if (!isInProgress(open)) return open;
      const { attemptNonce: _, ...counted } = countInterruption(open);
      return { ...counted, state: 'running', attempts: endedAttempts(open) + 1, ...defined({ attemptNonce }) };
    });
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

  /** Removes the files at a prefix in a shared store that are not the result of their request. */
  async function removeOtherParts(prefix: string, job: ReportJob | undefined): Promise<void> {
    const keys = await objects.list(prefix);
    const kept = job?.state === 'success' ? attemptPartsPrefix(job) : undefined;
    await objects.remove(kept === undefined ? keys : keys.filter((key) => !key.startsWith(kept)));
  }

  async function end(id: number, how: ReportEnd, folder?: string, as?: AttemptEnd): Promise<EndedReport> {
    const isCurrent = (job: ReportJob): boolean =>
      isInProgress(job) && (folder === undefined || isUnderWay(job, folder));
    // Its files are removed first: the disk may be full.
    if (folder !== undefined && as !== undefined) await removeWork(folder);
    const before = jobs.lastRead(id);
    let job = before;
    let written: ReportJob | undefined;
    if (before !== undefined && isCurrent(before)) {
      const hasFiles = how.state === 'success' && folder !== undefined;
      if (hasFiles) await upload(before, how.files, folder);
      const finishedMs = clock.nowMs();
      const expiresSeconds = Math.floor(finishedMs / 1000) + linkTtlSeconds;
      job = await jobs.change(id, (open) => {
        const counted = as === undefined ? open : countAttempt(open, as);
        written = isCurrent(open) ? { ...counted, ...how, finishedMs, expiresSeconds } : undefined;
        return written ?? open;
      });
      if (objects.isShared && (hasFiles || job === written)) {
        // An attempt that was overtaken leaves the files of the current one. What stays is removed with the request.
        const prefix = job === written ? partsPrefix(id) : attemptPartsPrefix(before);
        await removeOtherParts(prefix, job).catch(() => undefined);
      }
      await onEnd(id);
    }
    if (job === undefined) throw new AppError('not_found', `export request ${id} not found`);
    // What stays is removed by the next start.
    if (folder !== undefined) await removeWork(folder).catch(() => undefined);
    return { job, isOwn: job === written };
  }

  async function release(id: number, folder: string, as: AttemptEnd): Promise<void> {
    await removeWork(folder);
    await jobs.change(id, (job) => (isUnderWay(job, folder) ? { ...countAttempt(job, as), state: 'queued' } : job));
  }

  return {
    /** Starts an attempt, durably. An unreleased earlier one counts as interrupted. Error: `conflict` if ended. */
    beginAttempt: (id: number): Promise<{ job: ReportJob; folder: string }> => jobs.inTurn(id, () => begin(id)),
    /**
     * Ends a request: uploads the attempt's files as the request's parts if it succeeded, then writes job.json. An
     * attempt without a result counts `as`. Returns the request afterwards: of two ends, the first stays, and of
     * attempts only the current one counts.
     */
    end: (id: number, how: ReportEnd, attemptFolder?: string, as?: AttemptEnd): Promise<EndedReport> =>
      jobs.inTurn(id, () => end(id, how, attemptFolder, as)),
    /** Removes the folder of an attempt without a result; the request is queued again. */
    releaseAttempt: (id: number, folder: string, as: AttemptEnd): Promise<void> =>
      jobs.inTurn(id, () => release(id, folder, as)),
  };
}
