import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { inParallel } from '../runtime/async/in-parallel.ts';
import { createKeyedSemaphore } from '../runtime/async/semaphore.ts';
import type { Clock } from '../runtime/clock.ts';
import { describeError, isDamage, isSystemError } from '../runtime/errors.ts';
import { ensureFolder, removeFile, syncFolder } from '../runtime/files/durable-file.ts';
import type { Logger } from '../runtime/logger.ts';
import { createFolderStore } from '../runtime/store/folder-store.ts';
import { createEarlierRequests } from './earlier-requests.ts';
import { createJobAttempts, type JobAttempts } from './job-attempts.ts';
import { createJobRecords, type JobRecords } from './job-records.ts';
import { createProgressNotes } from './progress-notes.ts';
import { createReportIds, type ReportIds } from './report-ids.ts';
import { jobPath, listReportIds } from './report-records.ts';
import { isInProgress, partsFolder, type NewReport, type ReportJob } from './reports.ts';

/**
 * The export requests of a data folder. One process owns them: it holds them in memory and writes every change through.
 * What earlier processes have left is read in the background, the newest first: a start does not wait for the history.
 */
export interface ReportStore extends JobAttempts {
  /** Makes a request durable and gives it the next id. When that fails nothing of it stays. */
  create(report: NewReport): Promise<ReportJob>;
  /**
   * Finds a request, by its file if it has not been read yet. What this returns is durable: it may be answered to clients.
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
  /** Whether every request that earlier processes have left was read, or is damaged. */
  isLoaded(): boolean;
  /** Requests that could not be read, one sentence each: to their users they do not exist. */
  damaged(): readonly string[];
  /**
   * Remembers the progress that a client was shown, so that it does not go back after a crash. Kept by the kernel, not
   * fsynced.
   */
  noteProgress(id: number, percent: number): void;
  /** The highest progress that a client was shown, percent. */
  toldProgress(id: number): number;
  /** Deletes a request with its files; its id stays used. */
  remove(id: number): Promise<void>;
  /** Absolute path of a request's own folder. */
  folderOf(id: number): string;
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
/** Folders synced at a time. */
const width = 4;

async function createRequest(records: JobRecords, ids: ReportIds, report: NewReport, clock: Clock): Promise<ReportJob> {
  const id = await ids.allocate();
  try {
    const nonce = randomBytes(16).toString('hex');
    return await records.save({ id, ...report, createdMs: clock.nowMs(), state: 'queued', attempts: 0, nonce });
  } catch (error) {
    // No client knows of it: it must neither begin at the next start nor leave a folder behind at each try.
    await rm(records.folderOf(id), { recursive: true, force: true }).catch(() => undefined);
    throw error;
  }
}

async function removeRequest(records: JobRecords, ids: ReportIds, id: number): Promise<void> {
  const folder = records.folderOf(id);
  await ids.retire(id);
  // Its record goes first: half deleted, and the clock set back, it would be a success without files.
  await removeFile(jobPath(folder));
  await syncFolder(folder).catch((error: unknown) => {
    if (!isSystemError(error, 'ENOENT')) throw error;
  });
  await rm(folder, { recursive: true, force: true });
  records.drop(id);
}

/** Opens the requests of a folder, and creates the folder. The caller holds the lock that makes it their only owner. */
export async function openReportStore(clock: Clock, logger: Logger, options: ReportStoreOptions): Promise<ReportStore> {
  const { reportsDir, linkTtlSeconds, readFirst = defaultReadFirst } = options;
  await ensureFolder(reportsDir);
  await createFolderStore(reportsDir).sweep('');
  const found = (await listReportIds(reportsDir)).toReversed();
  const ids = createReportIds(reportsDir, found[0] ?? 0);
  // Without the highest id no request is created or deleted; those that are there are served.
  const idsFault = await ids.load().then(
    () => [],
    (error: unknown) => {
      if (!isDamage(error)) throw error;
      return [`no export can be created: ${describeError(error)}`];
    },
  );
  const records = createJobRecords(reportsDir, found);
  const mutex = createKeyedSemaphore();
  const progress = createProgressNotes(reportsDir, logger);
  const earlier = createEarlierRequests({ records, ids, mutex, logger });
  await earlier.readAll(found.slice(0, readFirst));

  return {
    ...createJobAttempts({ records, mutex, clock, linkTtlSeconds, onEnd: (id) => progress.drop(id) }),
    create: (report) => createRequest(records, ids, report, clock),
    async find(id) {
      if (records.unread.has(id)) await earlier.read(id);
      const job = records.find(id);
      if (job !== undefined) await records.settle(job);
      return records.find(id);
    },
    async select(wanted) {
      const selected = records.list().filter(wanted);
      await inParallel(selected, width, (job) => records.settle(job));
      return selected;
    },
    list: () => records.list(),
    inProgress: () => records.inProgress(),
    count: () => records.count(),
    knows: (id) => records.find(id) !== undefined,
    load: (signal, onInProgress) => earlier.load(signal, onInProgress),
    isLoaded: () => records.unread.size === 0,
    damaged: () => [...idsFault, ...earlier.damaged()],
    noteProgress(id, percent) {
      const job = records.find(id);
      if (job !== undefined && isInProgress(job)) progress.note(id, percent);
    },
    toldProgress: (id) => progress.told(id),
    remove: (id) => mutex.run(id, () => removeRequest(records, ids, id)),
    folderOf: (id) => records.folderOf(id),
    filePath: (id, name) => path.join(records.folderOf(id), partsFolder, name),
  };
}
