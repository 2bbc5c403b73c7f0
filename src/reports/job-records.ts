import path from 'node:path';
import { inParallel } from '../runtime/async/in-parallel.ts';
import { runAtHalfDutyCycle } from '../runtime/async/retry.ts';
import type { KeyedSemaphore } from '../runtime/async/semaphore.ts';
import { describeError, isAppError, isSystemError } from '../runtime/errors.ts';
import { syncFolder } from '../runtime/files/durable-file.ts';
import { listNames } from '../runtime/files/folder-names.ts';
import { getTextSync, removeFileSync, writeTextSync } from '../runtime/files/open-file.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import type { Logger } from '../runtime/logger.ts';
import { findJob, writeJob } from './report-records.ts';
import { attemptPrefix, isInProgress, partsFolder, type ReportJob } from './reports.ts';

const progressName = 'progress';

/** Creates the notes of the highest progress of each request that a client was shown, so that no crash decreases it. */
export function createProgressStore(reportsDir: string, logger: Logger) {
  const percents = new Map<number, number>();
  const fileOf = (id: number): string => path.join(reportsDir, String(id), progressName);

  function read(id: number): number {
    try {
      const text = getTextSync(fileOf(id));
      return /^\d{1,2}$/.test(text) ? Number(text) : 0;
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return 0;
      throw error;
    }
  }

  function reportedProgress(id: number): number {
    const percent = percents.get(id) ?? read(id);
    percents.set(id, percent);
    return percent;
  }

  return {
    reportedProgress,
    note(id: number, percent: number): void {
      if (percent <= reportedProgress(id)) return;
      percents.set(id, percent);
      try {
        writeTextSync(fileOf(id), String(percent));
      } catch (error) {
        // A full disk must not turn a response about progress into an error.
        logger.warn({ idReport: id, error: describeError(error) }, 'cannot write export progress');
      }
    },
    drop(id: number): void {
      percents.delete(id);
      removeFileSync(fileOf(id));
    },
  };
}

export type JobRecords = ReturnType<typeof createJobRecords>;

interface JobRecordsDependencies {
  readonly reportsDir: string;
  /** The ids that have a folder; none is read yet. */
  readonly found: readonly number[];
  /** Records durably that an id was allocated, before its folder is removed. */
  readonly retire: (id: number) => Promise<void>;
  /** Serializes the changes of a request, by its id. */
  readonly mutex: KeyedSemaphore;
  readonly logger: Logger;
}

const width = 4;

function isLeftover(name: string, job: ReportJob): boolean {
  if (name === partsFolder) return job.state !== 'success';
  if (name === progressName) return !isInProgress(job);
  return name.startsWith(attemptPrefix) || name.endsWith('.tmp');
}

/**
 * Reads the request of a folder and removes what a crash left there: attempts, unpublished parts, temporary files.
 * Undefined without a job.json. Error: `report_damaged`.
 */
async function recoverJob(folder: string, id: number): Promise<ReportJob | undefined> {
  const job = await findJob(path.dirname(folder), id);
  if (job === undefined) return undefined;
  for (const name of await listNames(folder)) if (isLeftover(name, job)) await removeTree(path.join(folder, name));
  return job;
}

/** Creates the export requests of a folder: a cache of job.json that writes each change through. */
export function createJobRecords({ reportsDir, found, retire, mutex, logger }: JobRecordsDependencies) {
  const jobs = new Map<number, ReportJob>();
  /** The requests in progress: few among many, listed at each creation and each end. */
  const open = new Map<number, ReportJob>();
  const unread = new Set(found);
  /** Requests of earlier processes whose folders were not synced since they were read. */
  const unsynced = new Set<number>();
  const damages = new Map<number, string>();
  let onFound: (() => void) | undefined;
  const folderOf = (id: number): string => path.join(reportsDir, String(id));

  function keep(job: ReportJob): ReportJob {
    jobs.set(job.id, job);
    if (isInProgress(job)) open.set(job.id, job);
    else open.delete(job.id);
    return job;
  }

  async function readNow(id: number): Promise<void> {
    if (!unread.has(id)) return;
    const job = await recoverJob(folderOf(id), id);
    if (job === undefined) {
      await retire(id);
      await removeTree(folderOf(id));
    } else {
      unsynced.add(id);
      keep(job);
    }
    unread.delete(id);
    damages.delete(id);
    if (job !== undefined && isInProgress(job)) onFound?.();
  }

  function keepDamage(id: number, error: unknown): void {
    const damage = describeError(error);
    if (damages.get(id) !== damage) logger.error({ idReport: id, error: damage }, 'cannot read export request');
    damages.set(id, damage);
    if (!isAppError(error, 'report_damaged')) throw error;
    unread.delete(id);
  }

  /**
   * Reads a request of an earlier process, once. A damaged one stays in its folder and is listed by `damaged`. Errors:
   * those of the file system; the request stays unread.
   */
  const read = (id: number): Promise<void> =>
    mutex.run(id, () => readNow(id).catch((error: unknown) => keepDamage(id, error)));
  const tryRead = (id: number): Promise<void> => read(id).catch(() => undefined);

  return {
    folderOf,
    async save(job: ReportJob): Promise<ReportJob> {
      await writeJob(reportsDir, job);
      unsynced.delete(job.id);
      return keep(job);
    },
    /** Makes a request durable that an earlier process wrote, once. */
    async settle({ id }: ReportJob): Promise<void> {
      if (!unsynced.has(id)) return;
      await syncFolder(folderOf(id)).catch((error: unknown) => {
        if (!isSystemError(error, 'ENOENT') || jobs.has(id)) throw error;
      });
      unsynced.delete(id);
    },
    drop(id: number): void {
      for (const known of [jobs, open, unsynced]) known.delete(id);
    },
    find: (id: number): ReportJob | undefined => jobs.get(id),
    list: (): readonly ReportJob[] => [...jobs.values()],
    inProgress: (): readonly ReportJob[] => [...open.values()].toSorted((a, b) => a.id - b.id),
    count: (): number => jobs.size + unread.size,
    isUnread: (id: number): boolean => unread.has(id),
    isLoaded: (): boolean => unread.size === 0,
    read,
    /** Reads requests and ignores errors. */
    readAll: (some: readonly number[]): Promise<void> => inParallel(some, width, tryRead),
    /** Reads all unread requests at half pace until the signal aborts; calls `onInProgress` for each in progress. */
    async load(signal: AbortSignal, onInProgress?: () => void): Promise<void> {
      onFound = onInProgress;
      await runAtHalfDutyCycle([...unread], width, tryRead, signal);
    },
    /** One sentence per request that cannot be read. */
    damaged: (): readonly string[] => [...damages.values()],
  };
}
