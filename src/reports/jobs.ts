import path from 'node:path';
import { inParallel } from '../runtime/async/in-parallel.ts';
import { runAtHalfDutyCycle } from '../runtime/async/retry.ts';
import { createKeyedSemaphore, type KeyedSemaphore } from '../runtime/async/semaphore.ts';
import { describeError, isAppError, isDamage, isSystemError } from '../runtime/errors.ts';
import { findNames } from '../runtime/files/folder-names.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import { missingObject, type ObjectStore } from '../runtime/store/object-store.ts';
import type { Records } from '../runtime/store/records.ts';
import { progressKey } from './progress-notes.ts';
import {
  jobKey,
  listReportIds,
  openJobRecords,
  partsPrefix,
  readHighestId,
  removeReport,
  writeHighestId,
} from './report-records.ts';
import { attemptPrefix, isInProgress, type ReportJob } from './reports.ts';

/** Called with a request that another host has created, changed or, if it is undefined, removed. */
export type JobListener = (id: number, job: ReportJob | undefined) => void;

/**
 * The export requests of a store. All else finds and changes them by this interface. There are two implementations: one
 * for a folder, whose only owner is this process, and one for a store that hosts share (shared-jobs.ts).
 */
export interface Jobs {
  /**
   * Creates a request, durably; leaves nothing on an error. It gets the next id, or a reserved one: then it may exist
   * already, and is returned as it is.
   */
  create(job: Omit<ReportJob, 'id'>, reservedId?: number): Promise<ReportJob>;
  /** Reserves an id for a request that several hosts may try to create; undefined if the store is not shared. */
  reserveId(): Promise<number | undefined>;
  /**
   * Finds a request, which is durable. One in progress that hosts share may have been read up to 250 ms ago, unless it is
   * to be `newest`.
   */
  find(id: number, age?: 'newest'): Promise<ReportJob | undefined>;
  /** Returns a request as last read, durable or not. */
  lastRead(id: number): ReportJob | undefined;
  /** Selects requests among those read so far; each is durable. */
  select(wanted: (job: ReportJob) => boolean): Promise<readonly ReportJob[]>;
  /** Lists the requests read so far. */
  list(): readonly ReportJob[];
  inProgress(): readonly ReportJob[];
  count(): number;
  /**
   * Changes a request by compare-and-swap, durably, and returns the result; undefined if it was removed. `to` runs again
   * after a conflict, and returns its argument to change nothing.
   */
  change(id: number, to: (job: ReportJob) => ReportJob): Promise<ReportJob | undefined>;
  /** Deletes a request with all its objects and work files. Its id is never used again. */
  remove(id: number): Promise<void>;
  /** Runs one piece of work on a request at a time. */
  inTurn<T>(id: number, work: () => Promise<T>): Promise<T>;
  /** Reads what other hosts have changed until now: new requests, and those in progress that are wanted. */
  refresh(isWanted?: (job: ReportJob) => boolean): Promise<void>;
  /** Reads what other hosts change, about each second, until it is stopped. */
  follow(onChange: JobListener): Stoppable;
  /** Reads the other requests at half pace until the signal aborts; calls `onInProgress` for each in progress. */
  load(signal: AbortSignal, onInProgress?: () => void): Promise<void>;
  /** Reports whether every request has been read or is damaged. */
  isLoaded(): boolean;
  /** One sentence per request that cannot be read, and if no id can be allocated. */
  damaged(): readonly string[];
}

const width = 4;

/** Allocates ids, each once, deletions and crashes included. `newest`: the highest in use. */
function createReportIds(objects: ObjectStore, newest: number) {
  /** The highest id that may have been deleted; undefined until it was read. */
  let highestRetired: number | undefined;
  let last = newest;

  async function load(): Promise<void> {
    if (highestRetired !== undefined) return;
    const retired = await readHighestId(objects);
    highestRetired = Math.max(highestRetired ?? 0, retired);
    last = Math.max(last, highestRetired);
  }

  return {
    load,
    async next(): Promise<number> {
      await load();
      return (last += 1);
    },
    /** Makes durable that no id up to this one is allocated again. Called before the objects of an id are removed. */
    async retire(id: number): Promise<void> {
      await load();
      if ((highestRetired ?? 0) >= id) return;
      await writeHighestId(objects, last);
      highestRetired = last;
    },
  };
}

/** Removes what a crash left of a request: attempts, unpublished parts, its progress, temporary objects. */
async function removeLeftovers(objects: ObjectStore, workFolder: string, job: ReportJob): Promise<void> {
  for (const name of await findNames(workFolder))
    if (name.startsWith(attemptPrefix)) await removeTree(path.join(workFolder, name));
  const [parts, progress] = [partsPrefix(job.id), progressKey(job.id)];
  if (job.state !== 'success') {
    await objects.remove(await objects.list(parts));
    await objects.sweep(parts);
  }
  if (!isInProgress(job) && (await objects.findSize(progress)) !== undefined) await objects.remove([progress]);
  await objects.sweep(`${job.id}/`);
}

/** Creates the requests that were read, and the sets of those that have to be read or synced before their use. */
function createKnownJobs(found: readonly number[]) {
  const jobs = new Map<number, ReportJob>();
  /** The requests in progress: few among many, listed at each creation and each end. */
  const open = new Map<number, ReportJob>();
  /** Requests that were not synced since they were read. */
  const unsynced = new Set<number>();
  /** Requests whose last change failed, before or after its write. */
  const doubtful = new Set<number>();

  function keep(job: ReportJob): ReportJob {
    jobs.set(job.id, job);
    if (isInProgress(job)) open.set(job.id, job);
    else open.delete(job.id);
    return job;
  }

  return {
    jobs,
    open,
    unread: new Set(found),
    unsynced,
    doubtful,
    keep,
    drop(id: number): void {
      for (const known of [jobs, open, unsynced, doubtful]) known.delete(id);
    },
  };
}

interface JobReaderDependencies {
  readonly objects: ObjectStore;
  readonly records: Records<ReportJob>;
  readonly ids: ReturnType<typeof createReportIds>;
  readonly known: ReturnType<typeof createKnownJobs>;
  readonly mutex: KeyedSemaphore;
  readonly workFolderOf: (id: number) => string;
  readonly logger: Logger;
}

/** Creates what reads requests of earlier processes, and those whose last change failed. */
function createJobReader({ objects, records, ids, known, mutex, workFolderOf, logger }: JobReaderDependencies) {
  const { jobs, unread, unsynced, doubtful } = known;
  const damages = new Map<number, string>();
  let onFound: (() => void) | undefined;

  async function removeAll(id: number): Promise<void> {
    await removeReport(objects, id);
    await removeTree(workFolderOf(id));
  }

  async function readNow(id: number): Promise<void> {
    if (!unread.has(id)) return;
    const job = await records.get(String(id));
    if (job === undefined) {
      await ids.retire(id);
      await removeAll(id);
    } else {
      await removeLeftovers(objects, workFolderOf(id), job);
      unsynced.add(id);
      known.keep(job);
    }
    unread.delete(id);
    damages.delete(id);
    if (job !== undefined && isInProgress(job)) onFound?.();
  }

  async function readAgain(id: number): Promise<void> {
    const job = await records.get(String(id));
    // A change that succeeded meanwhile is newer.
    if (job === undefined || !doubtful.delete(id)) return;
    damages.delete(id);
    unsynced.add(id);
    known.keep(job);
  }

  function keepDamage(id: number, error: unknown): void {
    const damage = describeError(error);
    if (damages.get(id) !== damage) logger.error({ idReport: id, error: damage }, 'cannot read export request');
    damages.set(id, damage);
    if (!isAppError(error, 'report_damaged')) throw error;
    unread.delete(id);
  }

  /**
   * Reads a request that is unread or doubtful. A damaged one stays where it is and is listed by `damaged`. Errors:
   * those of the store; the request stays unread.
   */
  async function read(id: number): Promise<void> {
    try {
      await (unread.has(id) ? mutex.run(id, () => readNow(id)) : readAgain(id));
    } catch (error) {
      keepDamage(id, error);
    }
  }
  const tryRead = (id: number): Promise<void> => read(id).catch(() => undefined);

  /** Makes a request durable that was read, once. */
  async function settle({ id }: ReportJob): Promise<void> {
    if (!unsynced.has(id)) return;
    await objects.sync([jobKey(id)]).catch((error: unknown) => {
      if (!isSystemError(error, 'ENOENT') || jobs.has(id)) throw error;
    });
    unsynced.delete(id);
  }

  return {
    read,
    /** Reads requests and ignores errors. */
    readAll: (some: readonly number[]): Promise<void> => inParallel(some, width, tryRead),
    load(signal: AbortSignal, onInProgress?: () => void): Promise<void> {
      onFound = onInProgress;
      return runAtHalfDutyCycle([...unread], width, tryRead, signal);
    },
    settle,
    removeAll,
    damages: (): readonly string[] => [...damages.values()],
  };
}

export interface JobsOptions {
  /** Folder of the work files; that of a request has its id. */
  readonly reportsDir: string;
  /** The newest requests, read before the requests are open. */
  readonly readFirst: number;
}

/** Creates a change by compare-and-swap of what is stored, which may differ from what was read last. */
function createChange(
  { objects, records }: Pick<JobReaderDependencies, 'objects' | 'records'>,
  { jobs, unsynced, doubtful, keep }: ReturnType<typeof createKnownJobs>,
): Jobs['change'] {
  return async (id, to) => {
    let before: ReportJob | undefined;
    const change = records.change(String(id), (stored) => (before = stored) && to(stored));
    const job = await change.catch((error: unknown) => {
      doubtful.add(id);
      throw error;
    });
    if (job === undefined && jobs.has(id)) throw missingObject(objects.nameOf(jobKey(id)));
    if (job !== before) unsynced.delete(id);
    else if (doubtful.has(id)) unsynced.add(id);
    doubtful.delete(id);
    return job && keep(job);
  };
}

/**
 * Opens the requests of a store whose only owner is this process. Those of earlier processes are read by `load`, the
 * newest first, so that a start does not wait for them.
 */
export async function openJobs(
  objects: ObjectStore,
  logger: Logger,
  { reportsDir, readFirst }: JobsOptions,
): Promise<Jobs> {
  const records = openJobRecords(objects);
  const found = (await listReportIds(objects)).toReversed();
  const ids = createReportIds(objects, found[0] ?? 0);
  // Without the highest id no request is created or deleted; existing ones are served.
  const idsFault = await ids.load().then(
    () => [],
    (error: unknown) => {
      if (!isDamage(error)) throw error;
      return [`cannot create exports: ${describeError(error)}`];
    },
  );
  const mutex = createKeyedSemaphore();
  const known = createKnownJobs(found);
  const { jobs, open, unread, doubtful } = known;
  const workFolderOf = (id: number): string => path.join(reportsDir, String(id));
  const reader = createJobReader({ objects, records, ids, known, mutex, workFolderOf, logger });
  await reader.readAll(found.slice(0, readFirst));
  return {
    async create(report) {
      for (;;) {
        const job = { id: await ids.next(), ...report };
        try {
          if ((await records.create(String(job.id), job)) === 'created') return known.keep(job);
        } catch (error) {
          // No client has its id: it must not run at the next start, nor leave a folder at each attempt.
          await reader.removeAll(job.id).catch(() => undefined);
          throw error;
        }
      }
    },
    async find(id) {
      if (unread.has(id) || doubtful.has(id)) await reader.read(id);
      const job = jobs.get(id);
      if (job !== undefined) await reader.settle(job);
      return jobs.get(id);
    },
    reserveId: async () => undefined,
    refresh: async () => undefined,
    follow: () => ({ stop: async () => undefined }),
    lastRead: (id) => jobs.get(id),
    async select(wanted) {
      const selected = [...jobs.values()].filter(wanted);
      await inParallel(selected, width, reader.settle);
      return selected;
    },
    list: () => [...jobs.values()],
    inProgress: () => [...open.values()].toSorted((a, b) => a.id - b.id),
    count: () => jobs.size + unread.size,
    change: createChange({ objects, records }, known),
    remove: (id) =>
      mutex.run(id, async () => {
        await ids.retire(id);
        await reader.removeAll(id);
        known.drop(id);
      }),
    inTurn: (id, work) => mutex.run(id, work),
    load: (signal, onInProgress) => reader.load(signal, onInProgress),
    isLoaded: () => unread.size === 0,
    damaged: () => [...idsFault, ...reader.damages()],
  };
}
