import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Clock } from '../runtime/clock.ts';
import { ensureFolder, removeFile, syncFolder } from '../runtime/files/durable-file.ts';
import { AppError, describeError, isAppError, isSystemError } from '../runtime/errors.ts';
import { inParallel } from '../runtime/async/in-parallel.ts';
import type { Logger } from '../runtime/logger.ts';
import { runAtHalfPace } from '../runtime/async/pace.ts';
import { jobPath, writeJobFile } from './job-file.ts';
import { createJobTable } from './job-table.ts';
import { readHighestId, writeHighestId } from './highest-id.ts';
import { createProgressNotes } from './progress-notes.ts';
import { attemptPrefix, partsFolder, recoverJob } from './recover-job.ts';
import { endedAttempts, isInProgress, type NewReport, type ReportEnd, type ReportJob } from './reports.ts';
import { createTurns } from '../runtime/async/mutex.ts';

/** What an attempt without a result counts as: the request's own failure, an interruption from outside, or nothing. */
export type AttemptEnd = 'failure' | 'interruption' | 'nothing';

/**
 * The export requests of a data folder. One process owns them: it holds them in memory and writes every change through.
 * What earlier processes have left is read by and by, the newest first: a start does not wait for the history.
 */
export interface ReportStore {
  /** Makes a request durable and gives it the next id. When that fails nothing of it stays. */
  create(report: NewReport): Promise<ReportJob>;
  /**
   * Finds a request, by its file if it has not been read yet. What this returns is durable: clients may be told of it.
   */
  find(id: number): Promise<ReportJob | undefined>;
  /** The requests that match, of those read so far, durable as those of `find`. */
  select(wanted: (job: ReportJob) => boolean): Promise<readonly ReportJob[]>;
  /** The requests read so far, in no order. */
  list(): readonly ReportJob[];
  /** Those of them that wait or run, oldest first. */
  inProgress(): readonly ReportJob[];
  /** How many requests there are, read or not. */
  count(): number;
  /** Says whether a request is here, and was read. */
  knows(id: number): boolean;
  /**
   * Reads the requests that are left to read, slowly, until the signal aborts; calls `onInProgress` for each that waits
   * or ran.
   */
  load(signal: AbortSignal, onInProgress?: () => void): Promise<void>;
  /** Requests that could not be read, one sentence each: to their users they do not exist. */
  damaged(): readonly string[];
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
  /**
   * Remembers the progress a client was told, so that it does not go back after a crash. Kept by the kernel, not
   * fsynced.
   */
  noteProgress(id: number, percent: number): void;
  /** The highest progress a client was told, percent. */
  toldProgress(id: number): number;
  /** Deletes a request with its files; its id stays used. */
  remove(id: number): Promise<void>;
  /** Absolute path of a published file. */
  filePath(id: number, name: string): string;
}

export interface ReportStoreOptions {
  /** The `reports` folder. */
  readonly reportsDir: string;
  /** How long the links of a finished request live. */
  readonly linkTtlSeconds: number;
  /** How many requests are read before the store is open, the newest; fewer in tests. */
  readonly readFirst?: number;
}

/**
 * Requests that are read before a store is open: those in progress are among the newest, and count for the limits of
 * the next.
 */
const defaultReadFirst = 256;
/** Requests read, or folders synced, at a time. */
const width = 4;

/** The ids of the requests in a folder, newest first; temporaries of an earlier process are removed. */
async function listIds(reportsDir: string): Promise<readonly number[]> {
  const names = await readdir(reportsDir);
  for (const name of names.filter((entry) => entry.endsWith('.tmp')))
    await rm(path.join(reportsDir, name), { force: true });
  return names
    .filter((name) => /^[1-9]\d{0,14}$/.test(name))
    .map(Number)
    .toSorted((a, b) => b - a);
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

/** Opens the requests of a folder, and creates the folder. The caller holds the lock that makes it their only owner. */
export async function openReportStore(clock: Clock, logger: Logger, options: ReportStoreOptions): Promise<ReportStore> {
  const { reportsDir, linkTtlSeconds, readFirst = defaultReadFirst } = options;
  await ensureFolder(reportsDir);
  const ids = await listIds(reportsDir);
  const jobs = createJobTable(ids);
  let highWater = await readHighestId(reportsDir);
  let lastId = Math.max(highWater, ids[0] ?? 0);
  const turns = createTurns();
  const progress = createProgressNotes(reportsDir, logger);
  const damages = new Map<number, string>();
  /**
   * Requests as an earlier process has left them: one that was killed may not have got as far as the sync of the newest
   * state.
   */
  const unsynced = new Set<number>();
  let onFound: (() => void) | undefined;

  const folderOf = (id: number): string => path.join(reportsDir, String(id));

  /** Makes sure that no id up to the last one is given out again, before the folder of one goes. */
  async function keepHighestId(id: number): Promise<void> {
    if (highWater >= id) return;
    await writeHighestId(reportsDir, lastId);
    highWater = lastId;
  }

  /**
   * Takes in a request of an earlier process, in its turn. A damaged one is left as it is, for the operator to look at,
   * and keeps no other from being served.
   */
  async function read(id: number): Promise<void> {
    if (!jobs.unread.has(id)) return;
    try {
      const job = await recoverJob(folderOf(id), id);
      if (job === undefined) {
        await keepHighestId(id);
        await rm(folderOf(id), { recursive: true, force: true });
      } else {
        unsynced.add(id);
        jobs.keep(job);
      }
      jobs.unread.delete(id);
      damages.delete(id);
      if (job !== undefined && isInProgress(job)) onFound?.();
    } catch (error) {
      const damage = describeError(error);
      if (damages.get(id) !== damage) logger.error({ idReport: id, error: damage }, 'export request cannot be read');
      damages.set(id, damage);
      if (!isAppError(error, 'report_damaged')) throw error;
      jobs.unread.delete(id);
    }
  }

  /** Makes what an earlier process has written of a request durable, once. */
  async function settle({ id }: ReportJob): Promise<void> {
    if (!unsynced.has(id)) return;
    await syncFolder(folderOf(id)).catch((error: unknown) => {
      if (!isSystemError(error, 'ENOENT') || jobs.find(id) !== undefined) throw error;
    });
    unsynced.delete(id);
  }

  const readInTurn = (id: number): Promise<void> => turns.take(id, () => read(id));
  await inParallel(ids.slice(0, readFirst), width, (id) => readInTurn(id).catch(() => undefined));

  async function save(job: ReportJob): Promise<ReportJob> {
    await writeJobFile(folderOf(job.id), job);
    jobs.keep(job);
    unsynced.delete(job.id);
    return job;
  }

  function getOpen(id: number): ReportJob {
    const job = jobs.find(id);
    if (job === undefined || !isInProgress(job)) throw new AppError('conflict', `export request ${id} has ended`);
    return job;
  }

  /** Exclusive mkdir hands each id out once, whoever else may be asking. */
  async function allocateId(): Promise<number> {
    for (;;) {
      lastId += 1;
      const id = lastId;
      try {
        await mkdir(folderOf(id), { mode: 0o700 });
        await syncFolder(reportsDir);
        return id;
      } catch (error) {
        if (!isSystemError(error, 'EEXIST')) throw error;
      }
    }
  }

  return {
    async create(report) {
      const id = await allocateId();
      try {
        return await save({
          id,
          ...report,
          createdMs: clock.nowMs(),
          state: 'queued',
          attempts: 0,
          nonce: randomBytes(16).toString('hex'),
        });
      } catch (error) {
        // Nobody was told of it: it must neither begin at the next start nor leave a folder behind at each try.
        await rm(folderOf(id), { recursive: true, force: true }).catch(() => undefined);
        throw error;
      }
    },
    async find(id) {
      if (jobs.unread.has(id)) await readInTurn(id);
      const job = jobs.find(id);
      if (job !== undefined) await settle(job);
      return jobs.find(id);
    },
    async select(wanted) {
      const found = jobs.list().filter(wanted);
      await inParallel(found, width, settle);
      return found;
    },
    list: () => jobs.list(),
    inProgress: () => jobs.inProgress(),
    count: () => jobs.count(),
    knows: (id) => jobs.find(id) !== undefined,
    async load(signal, onInProgress) {
      onFound = onInProgress;
      await runAtHalfPace([...jobs.unread], width, (id) => readInTurn(id).catch(() => undefined), signal);
    },
    damaged: () => [...damages.values()],
    beginAttempt: (id) =>
      turns.take(id, async () => {
        const open = getOpen(id);
        const job = await save({ ...countInterruption(open), state: 'running', attempts: endedAttempts(open) + 1 });
        await removeAttempts(folderOf(id));
        const folder = path.join(folderOf(id), `${attemptPrefix}${job.attempts + (job.interruptions ?? 0)}`);
        await mkdir(folder, { mode: 0o700 });
        return { job, folder };
      }),
    end: (id, end, attemptFolder) =>
      turns.take(id, async () => {
        const job = jobs.find(id);
        if (job === undefined) throw new AppError('not_found', `there is no export request ${id}`);
        if (!isInProgress(job)) {
          if (attemptFolder !== undefined) await rm(attemptFolder, { recursive: true, force: true });
          return job;
        }
        if (end.state === 'success' && attemptFolder !== undefined) await publish(folderOf(id), attemptFolder);
        const finishedMs = clock.nowMs();
        const ended = await save({
          ...job,
          ...end,
          finishedMs,
          expiresSeconds: Math.floor(finishedMs / 1000) + linkTtlSeconds,
        });
        progress.drop(id);
        return ended;
      }),
    releaseAttempt: (id, folder, as) =>
      turns.take(id, async () => {
        await rm(folder, { recursive: true, force: true });
        const job = jobs.find(id);
        if (job?.state !== 'running') return;
        if (as === 'failure') await save({ ...job, state: 'queued' });
        else
          await save({
            ...(as === 'interruption' ? countInterruption(job) : job),
            state: 'queued',
            attempts: endedAttempts(job),
          });
      }),
    noteProgress(id, percent) {
      const job = jobs.find(id);
      if (job !== undefined && isInProgress(job)) progress.note(id, percent);
    },
    toldProgress: (id) => progress.told(id),
    remove: (id) =>
      turns.take(id, async () => {
        await keepHighestId(id);
        // Its record goes first: half deleted, and the clock set back, it would be a success without files.
        await removeFile(jobPath(folderOf(id)));
        await syncFolder(folderOf(id)).catch((error: unknown) => {
          if (!isSystemError(error, 'ENOENT')) throw error;
        });
        await rm(folderOf(id), { recursive: true, force: true });
        jobs.drop(id);
        unsynced.delete(id);
      }),
    filePath: (id, name) => path.join(folderOf(id), partsFolder, name),
  };
}
