import { randomBytes } from 'node:crypto';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { runAtHalfDutyCycle } from '../runtime/async/retry.ts';
import type { Clock } from '../runtime/clock.ts';
import { describeError } from '../runtime/errors.ts';
import { ensureFolder } from '../runtime/files/durable-file.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import { openStore } from '../runtime/store/open-store.ts';
import { createJobAttempts } from './job-attempts.ts';
import { openJobs } from './jobs.ts';
import { createProgressNotes, createSharedProgressNotes } from './progress-notes.ts';
import {
  readDeliveries,
  readDelivery,
  writeDeliveries,
  writeDelivery,
  type Delivery,
  type ReportDelivery,
} from './report-records.ts';
import { isExpired, isInProgress, type NewReport, type ReportJob } from './reports.ts';
import { openSharedJobs } from './shared-jobs.ts';

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

/**
 * Opens the export requests of a folder, and creates the folder. The caller holds its lock: no other process of this
 * machine has work files in it, and none has the requests unless they are in a store that hosts share.
 */
export async function openReportStore(clock: Clock, logger: Logger, options: ReportStoreOptions) {
  const { reportsDir, linkTtlSeconds, readFirst = defaultReadFirst } = options;
  await ensureFolder(reportsDir);
  const objects = openStore(reportsDir, { isOwned: true });
  await objects.sweep('');
  const open = objects.isShared ? openSharedJobs : openJobs;
  const jobs = await open(objects, logger, { reportsDir, readFirst });
  const isOpen = (id: number): boolean => {
    const job = jobs.lastRead(id);
    return job !== undefined && isInProgress(job);
  };
  const progress = objects.isShared
    ? createSharedProgressNotes(objects, logger)
    : createProgressNotes(objects, isOpen, logger);
  return {
    ...jobs,
    ...createJobAttempts({ jobs, objects, reportsDir, clock, linkTtlSeconds, onEnd: (id) => progress.drop(id) }),
    /** Creates a queued request, as `Jobs.create`. */
    create(report: NewReport, reservedId?: number): Promise<ReportJob> {
      const nonce = randomBytes(16).toString('hex');
      return jobs.create({ ...report, createdMs: clock.nowMs(), state: 'queued', attempts: 0, nonce }, reservedId);
    },
    /** Returns the progress to show for a request, percent; it never decreases, and is at least that of its worker. */
    showProgress: (id: number, percent: number): Promise<number> => progress.show(id, percent),
    /** Notes the progress of a request that runs here for other hosts, now and then. */
    noteProgress: (id: number, percent: number): void => progress.note(id, percent),
    readDeliveries: (id: number): Promise<readonly Delivery[]> => readDeliveries(objects, id),
    writeDeliveries: (id: number, deliveries: readonly Delivery[]): Promise<void> =>
      writeDeliveries(objects, id, deliveries),
    readDelivery: (id: number): Promise<ReportDelivery | undefined> => readDelivery(objects, id),
    writeDelivery: (id: number, delivery: ReportDelivery): Promise<void> => writeDelivery(objects, id, delivery),
    /** The objects of the requests, by their keys (report-records.ts). */
    objects,
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
