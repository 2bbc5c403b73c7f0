import { isInProgress, type ReportJob } from '../reports/reports.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
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
  const load = (job: ReportJob): number => [...running.values()].filter((other) => other.idAccount === job.idAccount).length;
  return waiting.toSorted((a, b) => load(a) - load(b) || a.id - b.id)[0];
}

/**
 * Starts the runner: requests in progress from before, of a process that was killed, begin anew at once. Stopping ends
 * the workers without counting their attempts.
 */
export function startJobRunner(dependencies: JobRunnerDependencies, options: JobRunnerOptions): JobRunner {
  const { store } = dependencies;
  const attempts = createAttempts(dependencies, options);
  const stopping = new AbortController();
  const running = new Map<number, Running>();

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
      const next = chooseNext(store.inProgress().filter((job) => !running.has(job.id)), running);
      if (next === undefined) return;
      start(next);
    }
  }

  wake();
  return {
    wake,
    async cancel(id) {
      const before = await store.find(id);
      if (before === undefined || !isInProgress(before)) return undefined;
      await attempts.finish(id, { state: 'canceled' });
      const current = running.get(id);
      current?.abort.abort();
      await current?.done;
      const after = await store.find(id);
      return after?.state === 'canceled' ? after : undefined;
    },
    progress(id) {
      const percent = Math.max(attempts.percent(id), store.toldProgress(id));
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
