import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Clock } from '../runtime/clock.ts';
import { ensureFolder, removeFile, syncFolder } from '../runtime/durable-file.ts';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { findJobFile, jobPath, writeJobFile } from './job-file.ts';
import { readHighestId, writeHighestId } from './highest-id.ts';
import { createProgressNotes, progressName } from './progress-notes.ts';
import { endedAttempts, isInProgress, partsFolder, type NewReport, type ReportEnd, type ReportJob } from './reports.ts';
import { createTurns } from './turns.ts';

/** What an attempt without a result counts as: the request's own failure, an interruption from outside, or nothing. */
export type AttemptEnd = 'failure' | 'interruption' | 'nothing';

/** The export requests of a data folder. One process owns them: it holds them in memory and writes every change through. */
export interface ReportStore {
  /** Makes a request durable and gives it the next id. When that fails nothing of it stays. */
  create(report: NewReport): Promise<ReportJob>;
  find(id: number): ReportJob | undefined;
  /** Every request, oldest first. */
  list(): readonly ReportJob[];
  /** Requests that could not be read at the start, one sentence each: to their users they do not exist. */
  readonly damaged: readonly string[];
  /**
   * Records the begin of an attempt, durably, and makes its empty folder; returns both. One that had begun and was never
   * released has been interrupted. Throws `conflict` on a request that has ended.
   */
  beginAttempt(id: number): Promise<{ job: ReportJob; folder: string }>;
  /**
   * Ends a request, once: publishes the attempt's folder as the request's files (`success`) or removes what is left,
   * then writes job.json. Returns the request as it is afterwards: of two ends, the first stays.
   */
  end(id: number, end: ReportEnd, attemptFolder?: string): Promise<ReportJob>;
  /** Takes back an attempt that gave no result: removes its folder; the request waits again. */
  releaseAttempt(id: number, folder: string, as: AttemptEnd): Promise<void>;
  /** Remembers the progress a client was told, so that it does not go back after a crash. Kept by the kernel, not fsynced. */
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
}

const attemptPrefix = 'attempt-';

/** Loads every request; removes what a crash left: folders without a job.json, attempts and unpublished parts. */
async function recover(reportsDir: string, logger: Logger): Promise<{ jobs: Map<number, ReportJob>; lastId: number; damaged: string[] }> {
  const names = await readdir(reportsDir);
  for (const name of names.filter((entry) => entry.endsWith('.tmp'))) await rm(path.join(reportsDir, name), { force: true });
  const ids = names.filter((name) => /^[1-9]\d{0,14}$/.test(name)).map(Number).toSorted((a, b) => a - b);
  const jobs = new Map<number, ReportJob>();
  const damaged: string[] = [];
  const lastId = Math.max(await readHighestId(reportsDir), ...ids.slice(-1));
  for (const id of ids) {
    const folder = path.join(reportsDir, String(id));
    try {
      const job = await findJobFile(folder, id);
      if (job === undefined) {
        await writeHighestId(reportsDir, lastId);
        await rm(folder, { recursive: true, force: true });
        continue;
      }
      // A process that was killed after the rename may not have got as far as the sync; from here on clients are told of it.
      await syncFolder(folder);
      jobs.set(id, job);
      const leftovers = (await readdir(folder)).filter((name) => name.startsWith(attemptPrefix) || name.endsWith('.tmp') || (name === partsFolder && job.state !== 'success') || (name === progressName && !isInProgress(job)));
      for (const name of leftovers) await rm(path.join(folder, name), { recursive: true, force: true });
    } catch (error) {
      // One damaged request must not keep the others from being served: it is left as it is, for the operator to look at.
      logger.error({ idReport: id, error: describeError(error) }, 'export request cannot be read');
      damaged.push(describeError(error));
    }
  }
  return { jobs, lastId, damaged };
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
  const { reportsDir, linkTtlSeconds } = options;
  await ensureFolder(reportsDir);
  const { jobs, lastId: recoveredId, damaged } = await recover(reportsDir, logger);
  let lastId = recoveredId;
  let highWater = await readHighestId(reportsDir);
  const turns = createTurns();
  const progress = createProgressNotes(reportsDir, logger);

  const folderOf = (id: number): string => path.join(reportsDir, String(id));

  async function save(job: ReportJob): Promise<ReportJob> {
    await writeJobFile(folderOf(job.id), job);
    jobs.set(job.id, job);
    return job;
  }

  function getOpen(id: number): ReportJob {
    const job = jobs.get(id);
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
        return await save({ id, ...report, createdMs: clock.nowMs(), state: 'queued', attempts: 0, nonce: randomBytes(16).toString('hex') });
      } catch (error) {
        // Nobody was told of it: it must neither begin at the next start nor leave a folder behind at each try.
        await rm(folderOf(id), { recursive: true, force: true }).catch(() => undefined);
        throw error;
      }
    },
    find: (id) => jobs.get(id),
    list: () => [...jobs.values()],
    damaged,
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
        const job = jobs.get(id);
        if (job === undefined) throw new AppError('not_found', `there is no export request ${id}`);
        if (!isInProgress(job)) {
          if (attemptFolder !== undefined) await rm(attemptFolder, { recursive: true, force: true });
          return job;
        }
        if (end.state === 'success' && attemptFolder !== undefined) await publish(folderOf(id), attemptFolder);
        const finishedMs = clock.nowMs();
        const ended = await save({ ...job, ...end, finishedMs, expiresSeconds: Math.floor(finishedMs / 1000) + linkTtlSeconds });
        progress.drop(id);
        return ended;
      }),
    releaseAttempt: (id, folder, as) =>
      turns.take(id, async () => {
        await rm(folder, { recursive: true, force: true });
        const job = jobs.get(id);
        if (job?.state !== 'running') return;
        if (as === 'failure') await save({ ...job, state: 'queued' });
        else await save({ ...(as === 'interruption' ? countInterruption(job) : job), state: 'queued', attempts: endedAttempts(job) });
      }),
    noteProgress(id, percent) {
      const job = jobs.get(id);
      if (job !== undefined && isInProgress(job)) progress.note(id, percent);
    },
    toldProgress: (id) => progress.told(id),
    remove: (id) =>
      turns.take(id, async () => {
        if (highWater < id) {
          await writeHighestId(reportsDir, lastId);
          highWater = lastId;
        }
        // Its record goes first: half deleted, and the clock set back, it would be a success without files.
        await removeFile(jobPath(folderOf(id)));
        await syncFolder(folderOf(id)).catch((error: unknown) => {
          if (!isSystemError(error, 'ENOENT')) throw error;
        });
        await rm(folderOf(id), { recursive: true, force: true });
        jobs.delete(id);
      }),
    filePath: (id, name) => path.join(folderOf(id), partsFolder, name),
  };
}
