import type { AccessReader } from '../access/access.ts';
import { fileStem, isInProgress, type ReportEnd, type ReportJob } from '../reports/reports.ts';
import type { ReportStore } from '../reports/store.ts';
import type { Clock } from '../runtime/clock.ts';
import { describeError, isAppError } from '../runtime/errors.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import { pause } from '../runtime/retry.ts';
import { selectApps, type ExportRequest } from './request.ts';
import { runInWorker, type AttemptOutcome } from './worker-process.ts';
import type { WorkerLimits, WorkerPlan } from './worker-messages.ts';

/** Runs the export requests that wait, a bounded number at once, each in a worker of its own. */
export interface JobRunner extends Stoppable {
  /** Says that there may be something to do. */
  wake(): void;
  /** Cancels a request in progress; undefined when it has already ended. Its worker is gone when this returns. */
  cancel(id: number): Promise<ReportJob | undefined>;
  /** Progress of a request, percent, 0 to 99; it never goes back, not over a crash either. */
  progress(id: number): number;
  /** Workers running now. */
  running(): number;
}

export interface JobRunnerDependencies {
  readonly store: ReportStore;
  readonly access: AccessReader;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Told each request that ends, and how long it took from its creation, seconds. */
  readonly onEnd: (job: ReportJob, seconds: number) => void;
}

export interface JobRunnerOptions {
  readonly workers: number;
  readonly timeoutMs: number;
  /** Folder of the lake's `events` table. */
  readonly tableDir: string;
  readonly limits: WorkerLimits;
}

/** A request whose worker crashes or fails this often will never succeed. */
const maxAttempts = 8;
const firstRetryMs = 200;
const longestRetryMs = 5000;

interface Running {
  readonly idAccount: number;
  readonly abort: AbortController;
  readonly done: Promise<void>;
}

/** Of the requests that wait, the oldest one of the account with the fewest running. */
function chooseNext(waiting: readonly ReportJob[], running: ReadonlyMap<number, Running>): ReportJob | undefined {
  const load = (job: ReportJob): number => [...running.values()].filter((other) => other.idAccount === job.idAccount).length;
  return waiting.toSorted((a, b) => load(a) - load(b) || a.id - b.id)[0];
}

/**
 * Starts the runner: requests in progress from before, of a process that was killed, begin anew at once. Stopping ends
 * the workers without counting their attempts.
 */
export function startJobRunner({ store, access, clock, logger, onEnd }: JobRunnerDependencies, options: JobRunnerOptions): JobRunner {
  const stopping = new AbortController();
  const running = new Map<number, Running>();
  const percents = new Map<number, number>();

  async function finish(id: number, end: ReportEnd, folder?: string): Promise<void> {
    const job = await store.end(id, end, folder);
    percents.delete(id);
    // Of two ends at once the first one stays, and is the one to tell of.
    if (job.state !== end.state) return;
    const seconds = (clock.nowMs() - job.createdMs) / 1000;
    logger.info({ idReport: id, idUser: job.idUser, event: job.event, state: job.state, attempts: job.attempts, seconds, files: job.files?.length ?? 0, error: job.error }, 'export request ended');
    onEnd(job, seconds);
  }

  /** Settles what an attempt's outcome means for the request; says whether to try again. */
  async function settle(job: ReportJob, folder: string, outcome: AttemptOutcome): Promise<boolean> {
    const release = (uncounted: boolean): Promise<void> => store.releaseAttempt(job.id, folder, uncounted);
    switch (outcome.kind) {
      case 'done':
        await finish(job.id, { state: 'success', files: outcome.files }, folder);
        return false;
      case 'aborted':
        await release(true);
        return false;
      case 'timed_out':
        await release(false);
        await finish(job.id, { state: 'failed', error: `the export took longer than ${options.timeoutMs} ms` });
        return false;
      case 'failed':
      case 'crashed': {
        const reason = outcome.kind === 'failed' ? outcome.reason : 'error';
        // A full disk is not the request's fault: it goes on trying, for as long as an attempt may take.
        await release(reason === 'disk');
        if (reason === 'user') {
          await finish(job.id, { state: 'user_failed', error: outcome.error });
          return false;
        }
        const outOfTime = reason === 'disk' && clock.nowMs() - job.createdMs > options.timeoutMs;
        logger.warn({ idReport: job.id, attempt: job.attempts, error: outcome.error }, 'export attempt failed');
        if (!outOfTime && job.attempts < maxAttempts) return true;
        await finish(job.id, { state: 'failed', error: outcome.error });
        return false;
      }
      default:
        return outcome satisfies never;
    }
  }

  async function attempt(id: number, signal: AbortSignal): Promise<boolean> {
    const { job, folder } = await store.beginAttempt(id);
    const request = job.request as ExportRequest;
    const apps = selectApps(request, access.current().appsOfAccount(job.idAccount));
    const plan: WorkerPlan = { request, apps, tableDir: options.tableDir, folder, stem: fileStem(job), limits: options.limits };
    const onPercent = (percent: number): void => void percents.set(id, Math.max(percent, percents.get(id) ?? 0));
    return settle(job, folder, await runInWorker(plan, { timeoutMs: options.timeoutMs, onPercent, signal }));
  }

  async function run(id: number, signal: AbortSignal): Promise<void> {
    for (let retryMs = firstRetryMs; !signal.aborted; retryMs = Math.min(retryMs * 2, longestRetryMs)) {
      try {
        const begun = store.find(id)?.attempts ?? 0;
        if (begun >= maxAttempts) return await finish(id, { state: 'failed', error: `the export was interrupted ${begun} times` });
        if (!(await attempt(id, signal))) return;
      } catch (error) {
        // `conflict`: the request was cancelled in the meantime. Anything else is the disk: job.json cannot be written.
        if (isAppError(error, 'conflict')) return;
        logger.error({ idReport: id, error: describeError(error) }, 'export request cannot be run now');
      }
      await pause(retryMs, signal);
    }
  }

  function start(job: ReportJob): void {
    const abort = new AbortController();
    const stop = (): void => abort.abort();
    stopping.signal.addEventListener('abort', stop, { once: true });
    const done = run(job.id, abort.signal).finally(() => {
      stopping.signal.removeEventListener('abort', stop);
      running.delete(job.id);
      wake();
    });
    running.set(job.id, { idAccount: job.idAccount, abort, done });
  }

  function wake(): void {
    while (!stopping.signal.aborted && running.size < options.workers) {
      const next = chooseNext(store.list().filter((job) => isInProgress(job) && !running.has(job.id)), running);
      if (next === undefined) return;
      start(next);
    }
  }

  wake();
  return {
    wake,
    async cancel(id) {
      const before = store.find(id);
      if (before === undefined || !isInProgress(before)) return undefined;
      await finish(id, { state: 'canceled' });
      const current = running.get(id);
      current?.abort.abort();
      await current?.done;
      const after = store.find(id);
      return after?.state === 'canceled' ? after : undefined;
    },
    progress(id) {
      const percent = Math.max(percents.get(id) ?? 0, store.toldProgress(id));
      store.noteProgress(id, percent);
      return percent;
    },
    running: () => running.size,
    async stop() {
      stopping.abort();
      await Promise.all([...running.values()].map((job) => job.done));
    },
  };
}
