import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { runAtHalfPace } from '../runtime/async/retry.ts';
import type { Clock } from '../runtime/clock.ts';
import { describeError } from '../runtime/errors.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import { isExpired, type ReportJob } from './reports.ts';
import type { ReportStore } from './store.ts';

const sweepEveryMs = 1000;

/**
 * Starts the sweeper, which deletes each request and its files after its links expired and frees their disk space.
 * Failed deletions are retried. A request that `isHeld` reports stays for now.
 */
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
      logger.info({ idReport: job.id, files: job.files?.length ?? 0 }, 'report files deleted after their links ended');
    } catch (error) {
      logger.error({ idReport: job.id, error: describeError(error) }, 'report files cannot be deleted');
    }
  }

  async function sweep(signal: AbortSignal): Promise<void> {
    const expired = store.list().filter((job) => isExpired(job, clock.nowMs()));
    await runAtHalfPace(expired, 1, remove, signal);
  }

  return startPollLoop(sweep, {
    everyMs: sweepEveryMs,
    onError: (error) => logger.error({ error: describeError(error) }, 'expired report files cannot be listed'),
  });
}
