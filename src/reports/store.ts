import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Clock } from '../runtime/clock.ts';
import { ensureFolder, findTextFile, syncFolder, writeFileDurably } from '../runtime/durable-file.ts';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { findJobFile, writeJobFile } from './job-file.ts';
import { isInProgress, type NewReport, type ReportEnd, type ReportJob } from './reports.ts';

/** The export requests of a data folder. One process owns them: it holds them in memory and writes every change through. */
export interface ReportStore {
  /** Makes a request durable and gives it the next id. */
  create(report: NewReport): Promise<ReportJob>;
  find(id: number): ReportJob | undefined;
  /** Every request, oldest first. */
  list(): readonly ReportJob[];
  /** Records the begin of an attempt, durably, and makes its empty folder; returns both. Throws `conflict` on a request that has ended. */
  beginAttempt(id: number): Promise<{ job: ReportJob; folder: string }>;
  /**
   * Ends a request, once: publishes the attempt's folder as the request's files (`success`) or removes what is left,
   * then writes job.json. Returns the request as it is afterwards: of two ends, the first stays.
   */
  end(id: number, end: ReportEnd, attemptFolder?: string): Promise<ReportJob>;
  /** Takes back an attempt that gave no result: removes its folder; the request waits again. `uncounted`: it was not the request's fault. */
  releaseAttempt(id: number, folder: string, uncounted: boolean): Promise<void>;
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

const partsFolder = 'parts';
const attemptPrefix = 'attempt-';
const progressName = 'progress';

/** The highest id that may have been deleted; written before a folder is, so that no id comes back. */
function highWaterPath(reportsDir: string): string {
  return path.join(reportsDir, 'highest-id');
}

/** What clients were last told of a request in progress: a bare number of percent. */
function progressPath(folder: string): string {
  return path.join(folder, progressName);
}

async function readHighWater(reportsDir: string): Promise<number> {
  const text = await findTextFile(highWaterPath(reportsDir));
  if (text === undefined) return 0;
  if (!/^\d{1,15}\n$/.test(text)) throw new AppError('corrupt', `${highWaterPath(reportsDir)} is not a number`, { hint: 'Write the highest id ever given out into it.' });
  return Number(text);
}

/** Loads every request; removes what a crash left: folders without a job.json, attempts and unpublished parts. */
async function recover(reportsDir: string, logger: Logger): Promise<{ jobs: Map<number, ReportJob>; lastId: number }> {
  const names = await readdir(reportsDir);
  const ids = names.filter((name) => /^[1-9]\d{0,14}$/.test(name)).map(Number).toSorted((a, b) => a - b);
  const jobs = new Map<number, ReportJob>();
  const lastId = Math.max(await readHighWater(reportsDir), ...ids.slice(-1));
  for (const id of ids) {
    const folder = path.join(reportsDir, String(id));
    try {
      const job = await findJobFile(folder, id);
      if (job === undefined) {
        await writeFileDurably(highWaterPath(reportsDir), `${lastId}\n`);
        await rm(folder, { recursive: true, force: true });
        continue;
      }
      jobs.set(id, job);
      const leftovers = (await readdir(folder)).filter((name) => name.startsWith(attemptPrefix) || name.endsWith('.tmp') || (name === partsFolder && job.state !== 'success') || (name === progressName && !isInProgress(job)));
      for (const name of leftovers) await rm(path.join(folder, name), { recursive: true, force: true });
    } catch (error) {
      // One damaged request must not keep the others from being served: it is left as it is, for the operator to look at.
      logger.error({ idReport: id, error: describeError(error) }, 'export request cannot be read');
    }
  }
  return { jobs, lastId };
}

/** Opens the requests of a folder, and creates the folder. The caller holds the lock that makes it their only owner. */
export async function openReportStore(clock: Clock, logger: Logger, options: ReportStoreOptions): Promise<ReportStore> {
  const { reportsDir, linkTtlSeconds } = options;
  await ensureFolder(reportsDir);
  const { jobs, lastId: recoveredId } = await recover(reportsDir, logger);
  let lastId = recoveredId;
  let highWater = await readHighWater(reportsDir);
  /** The newest change of each request: changes of one request run one after the other. */
  const tails = new Map<number, Promise<unknown>>();

  const told = new Map<number, number>();
  for (const job of jobs.values()) {
    const percent = isInProgress(job) ? await findTextFile(progressPath(path.join(reportsDir, String(job.id)))) : undefined;
    if (percent !== undefined && /^\d{1,2}$/.test(percent)) told.set(job.id, Number(percent));
  }

  const folderOf = (id: number): string => path.join(reportsDir, String(id));

  function inOrder<T>(id: number, change: () => Promise<T>): Promise<T> {
    const result = (tails.get(id) ?? Promise.resolve()).then(change, change);
    const tail = result.catch(() => undefined).then(() => void (tails.get(id) === tail && tails.delete(id)));
    tails.set(id, tail);
    return result;
  }

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

  async function removeAttempts(id: number): Promise<void> {
    const names = await readdir(folderOf(id));
    for (const name of names.filter((candidate) => candidate.startsWith(attemptPrefix))) await rm(path.join(folderOf(id), name), { recursive: true, force: true });
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
      return save({ version: 1, id, ...report, createdMs: clock.nowMs(), state: 'queued', attempts: 0, nonce: randomBytes(16).toString('hex') });
    },
    find: (id) => jobs.get(id),
    list: () => [...jobs.values()],
    beginAttempt: (id) =>
      inOrder(id, async () => {
        const open = getOpen(id);
        const job = await save({ ...open, state: 'running', attempts: open.attempts + 1 });
        await removeAttempts(id);
        const folder = path.join(folderOf(id), `${attemptPrefix}${job.attempts}`);
        await mkdir(folder, { mode: 0o700 });
        return { job, folder };
      }),
    end: (id, end, attemptFolder) =>
      inOrder(id, async () => {
        const job = jobs.get(id);
        if (job === undefined) throw new AppError('not_found', `there is no export request ${id}`);
        if (!isInProgress(job)) {
          if (attemptFolder !== undefined) await rm(attemptFolder, { recursive: true, force: true });
          return job;
        }
        if (end.state === 'success' && attemptFolder !== undefined) {
          const parts = path.join(folderOf(id), partsFolder);
          await rm(parts, { recursive: true, force: true });
          await rename(attemptFolder, parts);
          await syncFolder(folderOf(id));
        }
        const finishedMs = clock.nowMs();
        const ended = await save({ ...job, ...end, finishedMs, expiresSeconds: Math.floor(finishedMs / 1000) + linkTtlSeconds });
        await rm(progressPath(folderOf(id)), { force: true });
        return ended;
      }),
    releaseAttempt: (id, folder, uncounted) =>
      inOrder(id, async () => {
        await rm(folder, { recursive: true, force: true });
        const job = jobs.get(id);
        if (job?.state === 'running') await save({ ...job, state: 'queued', attempts: uncounted ? job.attempts - 1 : job.attempts });
      }),
    noteProgress(id, percent) {
      const job = jobs.get(id);
      if (job === undefined || !isInProgress(job) || percent <= (told.get(id) ?? 0)) return;
      told.set(id, percent);
      try {
        writeFileSync(progressPath(folderOf(id)), String(percent), { mode: 0o600 });
      } catch (error) {
        // A full disk must not turn an answer about progress into an error.
        logger.warn({ idReport: id, error: describeError(error) }, 'progress cannot be remembered');
      }
    },
    toldProgress: (id) => told.get(id) ?? 0,
    remove: (id) =>
      inOrder(id, async () => {
        if (highWater < id) {
          await writeFileDurably(highWaterPath(reportsDir), `${lastId}\n`);
          highWater = lastId;
        }
        await rm(folderOf(id), { recursive: true, force: true });
        jobs.delete(id);
        told.delete(id);
      }),
    filePath: (id, name) => path.join(folderOf(id), partsFolder, name),
  };
}
