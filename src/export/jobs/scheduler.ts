/**
 * Jobs: each export request in progress is run until it has ended.
 *
 * In: requests of the report store. Out: attempts in worker processes, and one end per request. This folder also has
 * what api and worker share: the export spec and the messages.
 * Invariant: a request ends once; a bounded number of workers runs; an attempt that was killed from outside is not
 * counted, up to a separate bound. Where hosts share the reports, each takes any request that no other host has claimed
 * (claims.ts) when it has a free worker.
 * Crash: workers die with this process; the next start removes their folders. It, or another host, restarts the
 * attempts.
 */
import { isInProgress, type ReportJob } from '../../reports/reports.ts';
import { startPollLoop } from '../../runtime/async/poll-loop.ts';
import { describeError } from '../../runtime/errors.ts';
import type { Leases } from '../../runtime/store/leases.ts';
import { createAttempts, userStatusOf, type AttemptsDependencies, type AttemptsOptions } from './attempts.ts';
import { createClaims } from './claims.ts';

export type JobRunner = ReturnType<typeof startJobRunner>;

interface JobRunnerDependencies extends AttemptsDependencies {
  /** The leases of the hosts that share the reports; absent: only this process runs requests. */
  readonly leases?: Leases | undefined;
}

export interface JobRunnerOptions extends AttemptsOptions {
  readonly workers: number;
}

/** Creates the set of running requests; `onEnd` is called after each run. */
function createRunning(run: (id: number, signal: AbortSignal) => Promise<void>, onEnd: () => void) {
  const running = new Map<
    number,
    { readonly idAccount: number; readonly abort: AbortController; readonly done: Promise<void> }
  >();
  const abort = (id: number): void => running.get(id)?.abort.abort();
  async function stop(id: number): Promise<void> {
    abort(id);
    await running.get(id)?.done;
  }
  return {
    has: (id: number): boolean => running.has(id),
    count: (): number => running.size,
    countOf: (account: number): number => [...running.values()].filter(({ idAccount }) => idAccount === account).length,
    start({ id, idAccount }: ReportJob): void {
      const aborter = new AbortController();
      const done = run(id, aborter.signal).finally(() => {
        running.delete(id);
        onEnd();
      });
      running.set(id, { idAccount, abort: aborter, done });
    },
    abort,
    stop,
    stopAll: async (): Promise<void> => void (await Promise.all([...running.keys()].map(stop))),
  };
}

/** Interval of tries to claim the requests that other hosts have left, ms. */
const claimEveryMs = 1000;

/**
 * Starts the runner of queued export requests: a bounded number at a time, each in a worker. It restarts requests of an
 * earlier process or a silent host, and those that read a removed app, and cancels those of a removed user. A stop ends
 * the workers without counting their attempts.
 */
export function startJobRunner(dependencies: JobRunnerDependencies, options: JobRunnerOptions) {
  const { store, access, logger, leases } = dependencies;
  const attempts = createAttempts(dependencies, options);
  const claims = createClaims(store, leases, logger);
  const running = createRunning(
    (id, signal) => claims.run(id, signal, (until) => attempts.run(id, until)),
    wake,
  );
  const stopping = new AbortController();
  const ending = new Map<number, Promise<void>>();

  const listWaiting = (): readonly ReportJob[] =>
    store.inProgress().filter(({ id }) => !running.has(id) && !ending.has(id));

  /** Chooses the oldest queued request of the account with the fewest running ones. */
  function chooseNext(): ReportJob | undefined {
    const waiting = listWaiting().filter(
      ({ id, idUser }) => claims.mayTry(id) && userStatusOf(access, idUser) !== 'unknown',
    );
    return waiting.toSorted((a, b) => running.countOf(a.idAccount) - running.countOf(b.idAccount) || a.id - b.id)[0];
  }

  function wake(): void {
    while (!stopping.signal.aborted && running.count() < options.workers) {
      const next = chooseNext();
      if (next === undefined) return;
      running.start(next);
    }
  }

  /**
   * Cancels a request in progress; undefined if it has ended. Its worker has exited when this returns. One on another
   * host ends within about a second.
   */
  async function cancel(id: number): Promise<ReportJob | undefined> {
    const before = await store.find(id);
    if (before === undefined || !isInProgress(before)) return undefined;
    await attempts.finish(id, { state: 'canceled' });
    await running.stop(id);
    const after = await store.find(id);
    return after?.state === 'canceled' ? after : undefined;
  }

  function reportFault(error: unknown): void {
    logger.error({ error: describeError(error) }, 'cannot start export requests, will retry');
  }

  async function cancelWaiting(id: number): Promise<void> {
    try {
      await cancel(id);
    } catch (error) {
      logger.warn(
        { idReport: id, error: describeError(error) },
        'cannot cancel export request of a removed user, will retry',
      );
    } finally {
      ending.delete(id);
      wake();
    }
  }

  /** Ends the requests of removed users. A running one is canceled by its next step. */
  function endTakenBack(): void {
    attempts.dropTakenBack();
    for (const { id, idUser } of listWaiting())
      if (userStatusOf(access, idUser) === 'removed') ending.set(id, cancelWaiting(id));
    wake();
  }

  endTakenBack();
  const stopListening = access.onChange(endTakenBack);
  const claiming = leases === undefined ? undefined : startPollLoop(wake, { everyMs: claimEveryMs, onError: reportFault });
  return {
    wake,
    cancel,
    /** Takes a request that another host has changed; undefined: removed. Ends its worker if that is overtaken. */
    onChange(id: number, job: ReportJob | undefined): void {
      if (attempts.isOvertaken(id, job)) running.abort(id);
      if (job?.state !== 'running') claims.retry(id);
      wake();
    },
    /** Progress of a request, percent, 0 to 99. It never decreases, not even after a crash. */
    progress: (id: number): Promise<number> => store.showProgress(id, attempts.percent(id)),
    running: (): number => running.count(),
    /** Counts the requests without a worker, on any host. */
    waiting: (): number => listWaiting().filter(({ state }) => state === 'queued' || leases === undefined).length,
    async stop(): Promise<void> {
      stopListening();
      stopping.abort();
      await claiming?.stop();
      await Promise.all([running.stopAll(), ...ending.values()]);
    },
  };
}
