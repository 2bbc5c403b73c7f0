import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { inParallel } from '../runtime/async/in-parallel.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { runAtHalfDutyCycle } from '../runtime/async/retry.ts';
import { createKeyedSemaphore } from '../runtime/async/semaphore.ts';
import type { Clock } from '../runtime/clock.ts';
import { describeError, isDamage, isSystemError } from '../runtime/errors.ts';
import { ensureFolder, removeFile, syncFolder } from '../runtime/files/durable-file.ts';
import { makeWorkFolder, removeTree } from '../runtime/files/work-files.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import { openStore } from '../runtime/store/open-store.ts';
import { createJobAttempts } from './job-attempts.ts';
import { createJobRecords, createProgressStore } from './job-records.ts';
import { jobPath, listReportIds, readHighestId, writeHighestId } from './report-records.ts';
import { isExpired, isInProgress, partsFolder, type NewReport, type ReportJob } from './reports.ts';

export type ReportStore = Awaited<ReturnType<typeof openReportStore>>;

interface ReportStoreOptions {
  readonly reportsDir: string;
  /** Life of the links of a finished request, s. */
  readonly linkTtlSeconds: number;
  /** The newest requests, read before the store is open. */
  readonly readFirst?: number;
}

/** Requests in progress are among the newest; they count for the limits of a create. */
const defaultReadFirst = 256;
const width = 4;

/** Allocates the ids of a reports folder: each once, deletions and crashes included. `newest`: the highest in use. */
function createReportIds(reportsDir: string, newest: number) {
  /** The highest id that may have been deleted; undefined until it was read. */
  let highestRetired: number | undefined;
  let last = newest;

  async function load(): Promise<void> {
    if (highestRetired !== undefined) return;
    const retired = await readHighestId(reportsDir);
    highestRetired = Math.max(highestRetired ?? 0, retired);
    last = Math.max(last, highestRetired);
  }

  return {
    load,
    /** Returns the next id. Its empty folder is durable; an exclusive mkdir makes the id unique. */
    async allocate(): Promise<number> {
      await load();
      for (;;) {
        last += 1;
        const id = last;
        try {
          await makeWorkFolder(path.join(reportsDir, String(id)));
          await syncFolder(reportsDir);
          return id;
        } catch (error) {
          if (!isSystemError(error, 'EEXIST')) throw error;
        }
      }
    },
    /** Makes durable that no id up to this one is allocated again. Called before the folder of an id is removed. */
    async retire(id: number): Promise<void> {
      await load();
      if ((highestRetired ?? 0) >= id) return;
      await writeHighestId(reportsDir, last);
      highestRetired = last;
    },
  };
}

/**
 * Opens the export requests of a folder, and creates the folder. The caller holds the lock of their only owner. They
 * are cached in memory, and each change is written through. Requests of earlier processes are read in the background,
 * the newest first, so that a start does not wait for them.
 */
export async function openReportStore(clock: Clock, logger: Logger, options: ReportStoreOptions) {
  const { reportsDir, linkTtlSeconds, readFirst = defaultReadFirst } = options;
  await ensureFolder(reportsDir);
  const store = openStore(reportsDir, { isGrowing: true });
  await store.remove(await store.listUnfinished(''));
  const found = (await listReportIds(reportsDir)).toReversed();
  const ids = createReportIds(reportsDir, found[0] ?? 0);
  // Without the highest id no request is created or deleted; existing ones are served.
  const idsFault = await ids.load().then(
    () => [],
    (error: unknown) => {
      if (!isDamage(error)) throw error;
      return [`cannot create exports: ${describeError(error)}`];
    },
  );
  const mutex = createKeyedSemaphore();
  const records = createJobRecords({ reportsDir, found, retire: (id) => ids.retire(id), mutex, logger });
  const progress = createProgressStore(reportsDir, logger);
  await records.readAll(found.slice(0, readFirst));

  async function remove(id: number): Promise<void> {
    const folder = records.folderOf(id);
    await ids.retire(id);
    // Its record is removed first: half deleted, and with the clock set back, it would be a success without files.
    await removeFile(jobPath(folder));
    await syncFolder(folder).catch((error: unknown) => {
      if (!isSystemError(error, 'ENOENT')) throw error;
    });
    await removeTree(folder);
    records.drop(id);
  }

  return {
    ...createJobAttempts({ records, mutex, clock, linkTtlSeconds, onEnd: (id) => progress.drop(id) }),
    /** Creates a request under the next id, durably; leaves nothing on an error. */
    async create(report: NewReport): Promise<ReportJob> {
      const id = await ids.allocate();
      try {
        const nonce = randomBytes(16).toString('hex');
        return await records.save({ id, ...report, createdMs: clock.nowMs(), state: 'queued', attempts: 0, nonce });
      } catch (error) {
        // No client has its id: it must not run at the next start, nor leave a folder at each attempt.
        await removeTree(records.folderOf(id)).catch(() => undefined);
        throw error;
      }
    },
    /** Finds a request, which is durable. Reads its file if it has not been read yet. */
    async find(id: number): Promise<ReportJob | undefined> {
      if (records.isUnread(id)) await records.read(id);
      const job = records.find(id);
      if (job !== undefined) await records.settle(job);
      return records.find(id);
    },
    /** Selects requests among those read so far; each is durable. */
    async select(wanted: (job: ReportJob) => boolean): Promise<readonly ReportJob[]> {
      const selected = records.list().filter(wanted);
      await inParallel(selected, width, (job) => records.settle(job));
      return selected;
    },
    list: (): readonly ReportJob[] => records.list(),
    inProgress: (): readonly ReportJob[] => records.inProgress(),
    count: (): number => records.count(),
    knows: (id: number): boolean => records.find(id) !== undefined,
    /** Reads the other requests at half pace until the signal aborts; calls `onInProgress` for each in progress. */
    load: (signal: AbortSignal, onInProgress?: () => void): Promise<void> => records.load(signal, onInProgress),
    /** Reports whether every request has been read or is damaged. */
    isLoaded: (): boolean => records.isLoaded(),
    /** One sentence per request that cannot be read. */
    damaged: (): readonly string[] => [...idsFault, ...records.damaged()],
    /** Keeps the progress that a client was shown, percent, so that it never decreases. Not fsynced. */
    recordProgress(id: number, percent: number): void {
      const job = records.find(id);
      if (job !== undefined && isInProgress(job)) progress.note(id, percent);
    },
    /** The highest progress that a client was shown, percent. */
    reportedProgress: (id: number): number => progress.reportedProgress(id),
    /** Deletes a request with its files. Its id is never used again. */
    remove: (id: number): Promise<void> => mutex.run(id, () => remove(id)),
    folderOf: (id: number): string => records.folderOf(id),
    filePath: (id: number, name: string): string => path.join(records.folderOf(id), partsFolder, name),
  };
}

const sweepEveryMs = 1000;

/** Starts the sweeper, which deletes expired requests and their files, and retries. `isHeld` requests stay for now. */
export function startSweeper(
  store: ReportStore,
  clock: Clock,
  logger: Logger,
  isHeld: (job: ReportJob) => boolean = () => false,
): Stoppable {
  async function remove(job: ReportJob): Promise<void> {
    // The clock may have been set back since.
    if (!isExpired(job, clock.nowMs()) || isHeld(job)) return;
    try {
      await store.remove(job.id);
      logger.info({ idReport: job.id, files: job.files?.length ?? 0 }, 'expired report files deleted');
    } catch (error) {
      logger.error({ idReport: job.id, error: describeError(error) }, 'cannot delete report files, will retry');
    }
  }

  async function sweep(signal: AbortSignal): Promise<void> {
    const expired = store.list().filter((job) => isExpired(job, clock.nowMs()));
    await runAtHalfDutyCycle(expired, 1, remove, signal);
  }

  return startPollLoop(sweep, {
    everyMs: sweepEveryMs,
    onError: (error) => logger.error({ error: describeError(error) }, 'cannot list expired report files, will retry'),
  });
}
