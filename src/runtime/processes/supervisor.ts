/**
 * Processes: the supervisor's side (this file, child.ts) and the child's (role-process.ts).
 *
 * In: how to start a child. Out: a child that runs, is started again after a growing pause when it ends, and reports
 * within a second what has changed.
 * Invariant: a child outlives its supervisor by a moment only: it ends when the channel between them closes.
 * Crash: the state file of a supervisor that was killed (service-state.ts) is removed by the next one, which knows by
 * process id and start time that nobody runs.
 */
import type { RunningChild } from './child.ts';
import { AppError, describeError, isAppError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { createBackoff, type Backoff, pause } from '../async/retry.ts';

/** A child that ended this often within `unsteadyMs` is a problem, until it has run for as long. */
const unsteadyEnds = 3;
const unsteadyMs = 60_000;

/** When a child ended by itself, or did not start, as far as that still counts. */
interface EndHistory {
  /** Records an end, now. */
  record(): void;
  /** Says whether it keeps ending. `runningSince`: by `performance.now()`; undefined while it does not run. */
  isUnsteady(runningSince: number | undefined): boolean;
}

/** Creates the history of a child that has not ended yet. */
function createEndHistory(): EndHistory {
  /** Newest last. */
  let ends: number[] = [];
  let unsteady = false;
  return {
    record() {
      const nowMs = performance.now();
      ends = [...ends, nowMs].filter((atMs) => nowMs - atMs < unsteadyMs).slice(-unsteadyEnds);
      unsteady ||= ends.length === unsteadyEnds;
    },
    isUnsteady(runningSince) {
      if (runningSince !== undefined && performance.now() - runningSince >= unsteadyMs) unsteady = false;
      return unsteady;
    },
  };
}

const firstBackoffMs = 100;
const maxBackoffMs = 5000;
/** A child that ran for this long before it ended is restarted as if it had never failed. */
const healthyMs = 10_000;
/**
 * A stop of the whole process group, as systemd's or a terminal's, may reach a child before it reaches this process.
 */
const groupStopMs = 50;

/** What a supervisor knows of its child. */
export interface ProcessState {
  readonly name: string;
  readonly state: 'starting' | 'running' | 'waiting' | 'stopped';
  readonly pid: number | undefined;
  readonly restarts: number;
  /** Why the last one ended or did not start; undefined while nothing went wrong. */
  readonly lastError: string | undefined;
  /**
   * It ended three times within a minute, and has not run for a minute since. Absent in the state of an earlier
   * version.
   */
  readonly unsteady?: boolean;
}

/** Keeps one child running: when it ends, starts another after a growing pause, until it is stopped. */
export interface Supervisor<C extends RunningChild> {
  state(): ProcessState;
  current(): C | undefined;
  stop(graceMs: number): Promise<void>;
  /** Kills the child, for another to be started; the reason is reported by the caller. */
  renew(): void;
  /** Kills the child without waiting; no other is started. */
  force(): void;
}

/** Errors of a start that waits for something else, which is reported as a problem of its own. */
const waitedFor = ['folder_lost', 'broker_away', 'broker_refused'] as const;

/** One child under supervision: what is known of it, and what its next start depends on. */
interface Supervision<C extends RunningChild> {
  readonly name: string;
  readonly start: (signal: AbortSignal) => Promise<C>;
  readonly logger: Logger;
  /** Aborted when the child is not wanted any more. */
  readonly stopping: AbortController;
  readonly backoff: Backoff;
  readonly history: EndHistory;
  readonly isExplained: () => boolean;
  child: C | undefined;
  /** When the newest child was started, by `performance.now()`. */
  startedAt: number;
  state: ProcessState['state'];
  restarts: number;
  lastError: string | undefined;
  /** The child was killed on purpose, for another to be started. */
  renewed: boolean;
}

/** Tries once to start another child; undefined when that failed. */
async function tryStart<C extends RunningChild>(supervision: Supervision<C>): Promise<C | undefined> {
  const { name, start, stopping, backoff, history, logger } = supervision;
  supervision.restarts += 1;
  supervision.state = 'starting';
  try {
    return await start(stopping.signal);
  } catch (error) {
    if (stopping.signal.aborted) return undefined;
    supervision.lastError = describeError(error);
    // What it waits for then is reported as a problem of its own, and this is resolved with it.
    if (!waitedFor.some((code) => isAppError(error, code))) history.record();
    logger.error(
      { process: name, error: supervision.lastError, retryInMs: backoff.currentMs() },
      'process did not start',
    );
    return undefined;
  }
}

/** Starts another child in place of one that is gone, after a pause that grows with each try, unless stopped. */
async function startAgain<C extends RunningChild>(supervision: Supervision<C>): Promise<void> {
  const { name, stopping, backoff, logger } = supervision;
  while (!stopping.signal.aborted) {
    supervision.state = 'waiting';
    await pause(backoff.currentMs(), stopping.signal);
    if (stopping.signal.aborted) return;
    backoff.grow();
    const child = await tryStart(supervision);
    if (child === undefined) continue;
    supervision.child = child;
    supervision.startedAt = performance.now();
    supervision.state = 'running';
    logger.info({ process: name, pid: child.pid, restarts: supervision.restarts }, 'process restarted');
    return;
  }
}

/** Waits for the end of each child and starts the next, until the supervision or the whole service stops. */
async function supervise<C extends RunningChild>(supervision: Supervision<C>, signal: AbortSignal): Promise<void> {
  const { name, stopping, backoff, history, isExplained, logger } = supervision;
  while (supervision.child !== undefined && !stopping.signal.aborted) {
    const exit = await supervision.child.exited;
    await pause(groupStopMs, AbortSignal.any([stopping.signal, signal]));
    if (stopping.signal.aborted || signal.aborted) return;
    supervision.child = undefined;
    // What is reported by itself explains the end of a child that met it before it was killed for it.
    if (!supervision.renewed && !isExplained()) history.record();
    supervision.renewed = false;
    if (performance.now() - supervision.startedAt >= healthyMs) backoff.reset();
    supervision.lastError = `ended with ${exit.signal ?? `exit code ${exit.code}`}`;
    logger.error({ process: name, code: exit.code, signal: exit.signal }, 'process ended, will be restarted');
    await startAgain(supervision);
  }
}

/**
 * Starts a child and keeps it running. The signal of `start` is aborted when the child is no longer wanted; `signal` is
 * aborted when the whole service stops: what ends from then on is not started again. Throws when the first start fails:
 * then nothing is supervised. `isExplained` says whether an end now has a cause that is a problem of its own, such as a
 * folder that was moved: it does not make the child unsteady.
 */
export async function startSupervisor<C extends RunningChild>(
  name: string,
  start: (signal: AbortSignal) => Promise<C>,
  logger: Logger,
  signal: AbortSignal,
  isExplained: () => boolean = () => false,
): Promise<Supervisor<C>> {
  const supervision: Supervision<C> = {
    name,
    start,
    logger,
    stopping: new AbortController(),
    backoff: createBackoff(firstBackoffMs, maxBackoffMs),
    history: createEndHistory(),
    isExplained,
    child: await start(signal),
    startedAt: performance.now(),
    state: 'running',
    restarts: 0,
    lastError: undefined,
    renewed: false,
  };
  const { stopping, history } = supervision;
  const supervised = supervise(supervision, signal);
  return {
    state() {
      const { state, child, restarts, lastError, startedAt } = supervision;
      const unsteady = history.isUnsteady(state === 'running' ? startedAt : undefined);
      return { name, state, pid: child?.pid, restarts, lastError, unsteady };
    },
    current: () => supervision.child,
    async stop(graceMs) {
      stopping.abort(new AppError('stopping', 'the service is stopping'));
      if (supervision.state === 'running') await supervision.child?.stop(graceMs);
      // A restart that was under way may have started a child all the same.
      await supervised;
      await supervision.child?.stop(graceMs);
      supervision.child = undefined;
      supervision.state = 'stopped';
    },
    renew() {
      supervision.renewed ||= supervision.child !== undefined;
      supervision.child?.kill();
    },
    force() {
      stopping.abort(new AppError('stopping', 'the service was forced to stop'));
      supervision.child?.kill();
    },
  };
}
