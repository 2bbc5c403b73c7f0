/**
 * Jobs: each export request in progress is brought to its one end.
 *
 * In: requests of the report store. Out: attempts in worker processes (attempts.ts, worker-process.ts) and one end for
 * each. What api and worker both know lies here: the export spec and the messages.
 * Invariant: a request ends once; only a bounded number of workers runs; an attempt that was killed from outside is not
 * held against the request, up to a bound of its own.
 * Crash: workers die with this process; the next start removes their folders and begins the attempts anew.
 */
import { isInProgress, type ReportJob } from '../../reports/reports.ts';
import { describeError } from '../../runtime/errors.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import { standingOf } from './standing.ts';
import { createAttempts, type AttemptsDependencies, type AttemptsOptions } from './attempts.ts';

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

export type JobRunnerDependencies = AttemptsDependencies;

export interface JobRunnerOptions extends AttemptsOptions {
  /** Requests that run at once. */
  readonly workers: number;
}

interface Running {
  readonly idAccount: number;
  readonly abort: AbortController;
  readonly done: Promise<void>;
}

/** Of the requests that wait, the oldest one of the account with the fewest running. */
function chooseNext(waiting: readonly ReportJob[], running: ReadonlyMap<number, Running>): ReportJob | undefined {
  const load = (job: ReportJob): number =>
    [...running.values()].filter((other) => other.idAccount === job.idAccount).length;
  return waiting.toSorted((a, b) => load(a) - load(b) || a.id - b.id)[0];
}

/**
 * Starts the runner: requests in progress from before, of a process that was killed, begin anew at once. Requests of a
 * user who is removed are canceled, those that read a removed app begin anew without it. Stopping ends the workers
 * without counting their attempts.
 */
export function startJobRunner(dependencies: JobRunnerDependencies, options: JobRunnerOptions): JobRunner {
  const { store, access, logger } = dependencies;
  const attempts = createAttempts(dependencies, options);
  const stopping = new AbortController();
  const running = new Map<number, Running>();
  /** Requests that wait and are being canceled because their user was removed. */
  const ending = new Map<number, Promise<void>>();

  function start(job: ReportJob): void {
    const abort = new AbortController();
    const stop = (): void => abort.abort();
    stopping.signal.addEventListener('abort', stop, { once: true });
    const done = attempts.run(job.id, abort.signal).finally(() => {
      stopping.signal.removeEventListener('abort', stop);
      running.delete(job.id);
      wake();
    });
    running.set(job.id, { idAccount: job.idAccount, abort, done });
  }

  function wake(): void {
    while (!stopping.signal.aborted && running.size < options.workers) {
      const next = chooseNext(
        store
          .inProgress()
          .filter((job) => !running.has(job.id) && !ending.has(job.id) && standingOf(access, job.idUser) !== 'unknown'),
        running,
      );
      if (next === undefined) return;
      start(next);
    }
  }

  async function cancel(id: number): Promise<ReportJob | undefined> {
    const before = await store.find(id);
    if (before === undefined || !isInProgress(before)) return undefined;
    await attempts.finish(id, { state: 'canceled' });
    const current = running.get(id);
    current?.abort.abort();
    await current?.done;
    const after = await store.find(id);
    return after?.state === 'canceled' ? after : undefined;
  }

  async function cancelWaiting(id: number): Promise<void> {
    try {
      await cancel(id);
    } catch (error) {
      logger.warn(
        { idReport: id, error: describeError(error) },
        'export request of a removed user cannot be canceled now, will be when its turn comes',
      );
    } finally {
      ending.delete(id);
      wake();
    }
  }

  /** Ends what works for whom access was taken from. A request that runs is canceled by its own next look. */
  function endTakenBack(): void {
    attempts.dropTakenBack();
    const waiting = store.inProgress().filter((job) => !running.has(job.id) && !ending.has(job.id));
    for (const job of waiting)
      if (standingOf(access, job.idUser) === 'removed') ending.set(job.id, cancelWaiting(job.id));
    wake();
  }

  endTakenBack();
  const stopListening = access.onChange(endTakenBack);
  return {
    wake,
    cancel,
    progress(id) {
      const percent = Math.max(attempts.percent(id), store.toldProgress(id));
      store.noteProgress(id, percent);
      return percent;
    },
    running: () => running.size,
    async stop() {
      stopListening();
      stopping.abort();
      await Promise.all([...[...running.values()].map((job) => job.done), ...ending.values()]);
    },
  };
}
