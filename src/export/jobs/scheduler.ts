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
import { createAttempts, type Attempts, type AttemptsDependencies, type AttemptsOptions } from './attempts.ts';

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

/** The requests that are being run, each until its run has ended. */
interface RunningJobs {
  has(id: number): boolean;
  count(): number;
  /** How many of them an account has. */
  countOf(idAccount: number): number;
  start(job: ReportJob): void;
  /** Breaks a request's run off, if there is one; it is over when this returns. */
  stop(id: number): Promise<void>;
  stopAll(): Promise<void>;
}

/** Creates an empty set; `onEnd` is called after each run. */
function createRunningJobs(attempts: Attempts, onEnd: () => void): RunningJobs {
  const running = new Map<
    number,
    { readonly idAccount: number; readonly abort: AbortController; readonly done: Promise<void> }
  >();
  async function stop(id: number): Promise<void> {
    const current = running.get(id);
    current?.abort.abort();
    await current?.done;
  }
  return {
    has: (id) => running.has(id),
    count: () => running.size,
    countOf: (idAccount) => [...running.values()].filter((other) => other.idAccount === idAccount).length,
    start({ id, idAccount }) {
      const abort = new AbortController();
      const done = attempts.run(id, abort.signal).finally(() => {
        running.delete(id);
        onEnd();
      });
      running.set(id, { idAccount, abort, done });
    },
    stop,
    stopAll: async () => void (await Promise.all([...running.keys()].map(stop))),
  };
}

/** Of the requests that wait, the oldest one of the account with the fewest running. */
function chooseNext(waiting: readonly ReportJob[], running: RunningJobs): ReportJob | undefined {
  return waiting.toSorted((a, b) => running.countOf(a.idAccount) - running.countOf(b.idAccount) || a.id - b.id)[0];
}

/**
 * Starts the runner: requests in progress from before, of a process that was killed, begin anew at once. Requests of a
 * user who is removed are canceled, those that read a removed app begin anew without it. Stopping ends the workers
 * without counting their attempts.
 */
export function startJobRunner(dependencies: JobRunnerDependencies, options: JobRunnerOptions): JobRunner {
  const { store, access, logger } = dependencies;
  const attempts = createAttempts(dependencies, options);
  const running = createRunningJobs(attempts, wake);
  const stopping = new AbortController();
  /** Requests that wait and are being canceled because their user was removed. */
  const ending = new Map<number, Promise<void>>();

  const listWaiting = (): readonly ReportJob[] =>
    store.inProgress().filter(({ id }) => !running.has(id) && !ending.has(id));

  function wake(): void {
    while (!stopping.signal.aborted && running.count() < options.workers) {
      const waiting = listWaiting().filter((job) => standingOf(access, job.idUser) !== 'unknown');
      const next = chooseNext(waiting, running);
      if (next === undefined) return;
      running.start(next);
    }
  }

  async function cancel(id: number): Promise<ReportJob | undefined> {
    const before = await store.find(id);
    if (before === undefined || !isInProgress(before)) return undefined;
    await attempts.finish(id, { state: 'canceled' });
    await running.stop(id);
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

  /** Ends what works for users whose access was taken back. A request that runs is canceled by its own next step. */
  function endTakenBack(): void {
    attempts.dropTakenBack();
    for (const { id, idUser } of listWaiting())
      if (standingOf(access, idUser) === 'removed') ending.set(id, cancelWaiting(id));
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
    running: () => running.count(),
    async stop() {
      stopListening();
      stopping.abort();
      await Promise.all([running.stopAll(), ...ending.values()]);
    },
  };
}
