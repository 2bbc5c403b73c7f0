/**
 * The export requests of a store that several hosts share.
 *
 * In: requests and changes of this host; the records, which other hosts create, change and remove. Out: both.
 * Invariant: `highest-id` is raised by compare-and-swap before a request is created under the new id. So no two hosts
 * get one id, and a host that reads it knows the ids of all requests that were acknowledged. A request in progress is
 * read again before its use. One that has ended never changes.
 * Crash: an id without a request stays unused.
 */
import path from 'node:path';
import { inParallel } from '../runtime/async/in-parallel.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { runAtHalfDutyCycle } from '../runtime/async/retry.ts';
import { createKeyedSemaphore } from '../runtime/async/semaphore.ts';
import { describeError, isAppError, isDamage } from '../runtime/errors.ts';
import { removeEmptyFolder } from '../runtime/files/durable-file.ts';
import { findFolders, findNames } from '../runtime/files/folder-names.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import { createRateLimitedLog, failureBound } from '../runtime/problems/rate-limited-log.ts';
import type { ObjectStore } from '../runtime/store/object-store.ts';
import type { JobListener, Jobs, JobsOptions } from './jobs.ts';
import { listReportIds, openJobRecords, raiseHighestId, readHighestId, removeReport } from './report-records.ts';
import { attemptPrefix, isInProgress, type ReportJob } from './reports.ts';

/** Concurrent reads. */
const width = 8;
/** Age of the last reading of a request in progress that its use accepts, ms. */
const freshMs = 250;
const pollMs = 1000;
/** Time for which the request of a new id is looked for, ms: longer than its creation takes. */
const creationMs = 120_000;
/** More new ids than these are listed. */
const maxNewIds = 1000;
/** Time from the start to the first list, ms: a request may have been created during the list at the start. */
const firstListMs = 10_000;
/** Interval of lists, ms, and the time by which each id prolongs it: S3 lists 1,000 ids at a time. */
const [listMs, listMsPerId] = [60_000, 6];

const isSame = (a: ReportJob | undefined, b: ReportJob | undefined): boolean =>
  a?.state === b?.state && a?.attemptNonce === b?.attemptNonce;

/** Creates the copy of the records that this host has. A reading never replaces a later one. */
function createCopy() {
  const jobs = new Map<number, ReportJob>();
  const open = new Map<number, ReportJob>();
  /** Time as of which a request is known, ms. */
  const knownMs = new Map<number, number>();
  const listeners = new Set<JobListener>();

  /** Sets a request as it was at a time; undefined: there was none. `isNews`: another host may have changed it. */
  function set(id: number, job: ReportJob | undefined, asOfMs: number, isNews: boolean): void {
    const before = jobs.get(id);
    if ((before === undefined && job === undefined) || (knownMs.get(id) ?? -Infinity) > asOfMs) return;
    knownMs.set(id, asOfMs);
    if (job === undefined) jobs.delete(id);
    else jobs.set(id, job);
    if (job !== undefined && isInProgress(job)) open.set(id, job);
    else open.delete(id);
    if (isNews && !isSame(before, job)) for (const listener of listeners) listener(id, job);
  }

  return {
    jobs,
    open,
    listeners,
    isFresh: (id: number): boolean => performance.now() - (knownMs.get(id) ?? -Infinity) < freshMs,
    set,
    /** Removes the requests that a complete list lacks. */
    retain(listed: ReadonlySet<number>, asOfMs: number): void {
      for (const id of jobs.keys()) if (!listed.has(id)) set(id, undefined, asOfMs, true);
      // A reading takes less time.
      for (const [id, ms] of knownMs) if (!open.has(id) && asOfMs - ms > creationMs) knownMs.delete(id);
    },
  };
}

interface ReaderDependencies {
  readonly objects: ObjectStore;
  readonly logger: Logger;
  readonly copy: ReturnType<typeof createCopy>;
  /** The ids at the start, the newest first. */
  readonly found: readonly number[];
}

/** Creates what reads requests, and finds those of other hosts. */
function createReader({ objects, logger, copy, found }: ReaderDependencies) {
  const records = openJobRecords(objects);
  /** Requests that existed at the start. They are not news. */
  const unread = new Set(found);
  const damages = new Map<number, string>();
  /** New ids whose request was not found yet, with the time of their first look. */
  const awaited = new Map<number, number>();
  let highest = found[0] ?? 0;
  let idsFault: string | undefined;
  let nextListMs = performance.now() + firstListMs;

  /**
   * Reads a request; undefined if there is none. A damaged one stays as it was, and is listed by `damaged`. Errors:
   * those of the store.
   */
  async function read(id: number): Promise<ReportJob | undefined> {
    const startedMs = performance.now();
    try {
      copy.set(id, await records.get(String(id)), startedMs, !unread.has(id));
      damages.delete(id);
    } catch (error) {
      if (!isAppError(error, 'report_damaged')) throw error;
      const damage = describeError(error);
      if (damages.get(id) !== damage) logger.error({ idReport: id, error: damage }, 'cannot read export request');
      damages.set(id, damage);
    }
    unread.delete(id);
    return copy.jobs.get(id);
  }

  /** Reads a request that was listed. Without a record, it was removed: removes the rest of it. */
  async function readListed(id: number): Promise<void> {
    const job = await read(id);
    if (job !== undefined || damages.has(id)) return;
    await raiseHighestId(objects, (allocated) => Math.max(allocated, id));
    await removeReport(objects, id);
  }

  /** Adds the ids that were allocated since the last call. */
  async function awaitNewIds(): Promise<void> {
    try {
      const allocated = await readHighestId(objects);
      idsFault = undefined;
      if (allocated - highest > maxNewIds) nextListMs = 0;
      else for (let id = highest + 1; id <= allocated; id += 1) awaited.set(id, performance.now());
      highest = Math.max(highest, allocated);
    } catch (error) {
      if (!isDamage(error)) throw error;
      idsFault = `cannot create exports: ${describeError(error)}`;
    }
  }

  async function lookForNew(): Promise<void> {
    await awaitNewIds();
    await inParallel([...awaited], width, async ([id, sinceMs]) => {
      const isKnown = copy.jobs.has(id) || (await read(id)) !== undefined || damages.has(id);
      if (isKnown || performance.now() - sinceMs > creationMs) awaited.delete(id);
    });
  }

  return {
    read,
    unread,
    lookForNew,
    /** Reads listed requests and ignores errors; those stay unread. */
    tryRead: (id: number): Promise<void> => readListed(id).catch(() => undefined),
    isListDue: (): boolean => performance.now() > nextListMs,
    /** Finds removed requests, and those whose new id was not seen. */
    async list(): Promise<void> {
      const startedMs = performance.now();
      const listed = new Set(await listReportIds(objects));
      nextListMs = startedMs + Math.max(listMs, listed.size * listMsPerId);
      copy.retain(listed, startedMs);
      for (const known of [unread, damages]) for (const id of known.keys()) if (!listed.has(id)) known.delete(id);
      const unknown = [...listed].filter((id) => !copy.jobs.has(id) && !unread.has(id) && !damages.has(id));
      await inParallel(unknown, width, readListed);
    },
    damages: (): readonly string[] => [...(idsFault === undefined ? [] : [idsFault]), ...damages.values()],
  };
}

/** Starts to read what other hosts change. A store that responds slowly is asked less often. */
function startFollowing(
  refresh: () => Promise<void>,
  reader: ReturnType<typeof createReader>,
  logger: Logger,
): Stoppable {
  let tookMs = 0;
  const failures = createRateLimitedLog(
    (fields) => logger.warn(fields, 'cannot read the export requests of other hosts, will retry'),
    failureBound,
  );
  async function follow(): Promise<void> {
    const startedMs = performance.now();
    try {
      await refresh();
      if (reader.isListDue()) await reader.list();
    } finally {
      tookMs = performance.now() - startedMs;
    }
  }
  return startPollLoop(follow, {
    everyMs: () => Math.max(pollMs, tookMs),
    onError: (error) => failures.add({ error: describeError(error) }),
  });
}

/** Creates the changes of requests by this host. */
function createChanges(
  objects: ObjectStore,
  copy: ReturnType<typeof createCopy>,
  newest: number,
): Pick<Jobs, 'create' | 'reserveId' | 'change'> {
  const records = openJobRecords(objects);
  const allocate = (): Promise<number> => raiseHighestId(objects, (allocated) => Math.max(allocated, newest) + 1);

  return {
    reserveId: allocate,
    async create(report, reservedId) {
      for (;;) {
        const job = { id: reservedId ?? (await allocate()), ...report };
        try {
          if ((await records.create(String(job.id), job)) === 'created') {
            // It may have been read already.
            if (!copy.jobs.has(job.id)) copy.set(job.id, job, performance.now(), false);
            return job;
          }
        } catch (error) {
          // No client has its id: it must not run. A reserved one is created again.
          if (reservedId === undefined) await removeReport(objects, job.id).catch(() => undefined);
          throw error;
        }
        const readMs = performance.now();
        const other = await records.getSound(String(job.id));
        // It is that of this call if the response was lost and another host has begun it.
        if (other === undefined || (reservedId === undefined && other.nonce !== job.nonce)) continue;
        copy.set(job.id, other, readMs, true);
        return other;
      }
    },
    async change(id, to) {
      let before: ReportJob | undefined;
      const job = await records.change(String(id), (stored) => (before = stored) && to(stored));
      copy.set(id, job, performance.now(), job === before);
      return job;
    },
  };
}

/** Removes the attempts that an earlier process of this host has left, and nothing else. */
async function removeOldWork(reportsDir: string): Promise<void> {
  for (const id of await findFolders(reportsDir)) {
    const folder = path.join(reportsDir, id);
    for (const name of await findNames(folder))
      if (name.startsWith(attemptPrefix)) await removeTree(path.join(folder, name));
    await removeEmptyFolder(folder);
  }
}

/**
 * Opens the requests of a store that hosts share. Those that exist are read by `load`, the newest first, so that a
 * start does not wait for them.
 */
export async function openSharedJobs(
  objects: ObjectStore,
  logger: Logger,
  { reportsDir, readFirst }: JobsOptions,
): Promise<Jobs> {
  await removeOldWork(reportsDir);
  const found = (await listReportIds(objects)).toReversed();
  const copy = createCopy();
  const reader = createReader({ objects, logger, copy, found });
  const mutex = createKeyedSemaphore();
  const { jobs, open } = copy;

  async function refresh(isWanted: (job: ReportJob) => boolean = () => true): Promise<void> {
    await reader.lookForNew();
    const stale = [...open.values()].filter((job) => !copy.isFresh(job.id) && isWanted(job));
    await inParallel(stale, width, async ({ id }) => void (await reader.read(id)));
  }

  await inParallel(found.slice(0, readFirst), width, reader.tryRead);
  return {
    ...createChanges(objects, copy, found[0] ?? 0),
    async find(id, age) {
      const job = jobs.get(id);
      const mayUse = job !== undefined && (!isInProgress(job) || (age !== 'newest' && copy.isFresh(id)));
      return mayUse ? job : await reader.read(id);
    },
    lastRead: (id) => jobs.get(id),
    select: async (wanted) => [...jobs.values()].filter(wanted),
    list: () => [...jobs.values()],
    inProgress: () => [...open.values()].toSorted((a, b) => a.id - b.id),
    count: () => jobs.size + reader.unread.size,
    remove: (id) =>
      mutex.run(id, async () => {
        await raiseHighestId(objects, (allocated) => Math.max(allocated, id));
        await removeReport(objects, id);
        copy.set(id, undefined, performance.now(), false);
      }),
    inTurn: (id, work) => mutex.run(id, work),
    refresh,
    follow(onChange) {
      copy.listeners.add(onChange);
      const following = startFollowing(refresh, reader, logger);
      return {
        async stop() {
          copy.listeners.delete(onChange);
          await following.stop();
        },
      };
    },
    load: (signal, onInProgress = () => undefined) =>
      runAtHalfDutyCycle(
        [...reader.unread],
        width,
        async (id) => {
          await reader.tryRead(id);
          if (open.has(id)) onInProgress();
        },
        signal,
      ),
    isLoaded: () => reader.unread.size === 0,
    damaged: () => reader.damages(),
  };
}
