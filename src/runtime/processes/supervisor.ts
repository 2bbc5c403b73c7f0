/**
 * Processes: the supervisor's side (this file, child.ts) and the child's (role-process.ts).
 *
 * In: how to start a child. Out: a running child, which is restarted with backoff when it exits, and reports changes
 * within a second.
 * Invariant: a child exits soon after its supervisor, when the channel between them closes.
 * Crash: the next supervisor removes the state file of a killed one (service-state.ts), which it recognizes by process
 * id and start time.
 */
import type { RunningChild } from './child.ts';
import { AppError, describeError, isAppError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { withAnySignal } from '../async/in-parallel.ts';
import { createBackoff, type Backoff, pause } from '../async/retry.ts';

/** A crash loop: this many exits within `crashLoopWindowMs`, until the child has run for as long. */
const crashLoopExits = 3;
const crashLoopWindowMs = 60_000;

/** Creates the history of a child's recent exits and failed starts. */
function createEndHistory() {
  let ends: number[] = [];
  let unsteady = false;
  return {
    record(): void {
      const nowMs = performance.now();
      ends = [...ends, nowMs].filter((atMs) => nowMs - atMs < crashLoopWindowMs).slice(-crashLoopExits);
      unsteady ||= ends.length === crashLoopExits;
    },
    /** Reports a crash loop. `runningSince` is of `performance.now()`; undefined while the child is not running. */
    isCrashLooping(runningSince: number | undefined): boolean {
      if (runningSince !== undefined && performance.now() - runningSince >= crashLoopWindowMs) unsteady = false;
      return unsteady;
    },
  };
}

const firstBackoffMs = 100;
const maxBackoffMs = 5000;
/** Running time after which the backoff is reset, ms. */
const healthyMs = 10_000;
/** Delay before an exit counts as unexpected, ms: systemd or a terminal may stop a child before this process. */
const groupStopMs = 50;

export interface ProcessState {
  readonly name: string;
  readonly state: 'starting' | 'running' | 'waiting' | 'stopped';
  readonly pid: number | undefined;
  readonly restarts: number;
  /** Why the last child exited or did not start; undefined without a failure. */
  readonly lastError: string | undefined;
  /** Whether the child is in a crash loop. Absent in the state of an earlier version. */
  readonly unsteady?: boolean;
}

/** Keeps one child running: restarts it with backoff until it is stopped. */
export interface Supervisor<C extends RunningChild> {
  state(): ProcessState;
  current(): C | undefined;
  stop(graceMs: number): Promise<void>;
  /** Kills the child so that another is started; the caller reports the reason. */
  renew(): void;
  /** Kills the child without waiting; no other is started. */
  force(): void;
}

/** Errors of a start that waits for a condition which is reported as a separate problem. */
const waitedFor = ['folder_lost', 'broker_away', 'broker_refused'] as const;

interface Supervision<C extends RunningChild> {
  readonly name: string;
  readonly start: (signal: AbortSignal) => Promise<C>;
  readonly logger: Logger;
  /** Aborted when the child is no longer needed. */
  readonly stopping: AbortController;
  readonly backoff: Backoff;
  readonly history: ReturnType<typeof createEndHistory>;
  readonly isExplained: () => boolean;
  child: C | undefined;
  /** Start of the newest child, by `performance.now()`. */
  startedAt: number;
  state: ProcessState['state'];
  restarts: number;
  lastError: string | undefined;
  renewed: boolean;
}

/** Makes one attempt to start a child; returns undefined if it failed. */
async function tryStart<C extends RunningChild>(supervision: Supervision<C>): Promise<C | undefined> {
  const { name, start, stopping, backoff, history, logger } = supervision;
  supervision.restarts += 1;
  supervision.state = 'starting';
  try {
    return await start(stopping.signal);
  } catch (error) {
    if (stopping.signal.aborted) return undefined;
    supervision.lastError = describeError(error);
    if (!waitedFor.some((code) => isAppError(error, code))) history.record();
    logger.error(
      { process: name, error: supervision.lastError, retryInMs: backoff.currentMs() },
      'process did not start',
    );
    return undefined;
  }
}

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

/** Restarts the child after each exit, until the supervision or the service stops. */
async function supervise<C extends RunningChild>(supervision: Supervision<C>, signal: AbortSignal): Promise<void> {
  const { name, stopping, backoff, history, isExplained, logger } = supervision;
  while (supervision.child !== undefined && !stopping.signal.aborted) {
    const exit = await supervision.child.exited;
    await withAnySignal([stopping.signal, signal], (either) => pause(groupStopMs, either));
    if (stopping.signal.aborted || signal.aborted) return;
    supervision.child = undefined;
    // A separately reported condition explains the exit.
    if (!supervision.renewed && !isExplained()) history.record();
    supervision.renewed = false;
    if (performance.now() - supervision.startedAt >= healthyMs) backoff.reset();
    supervision.lastError = `ended with ${exit.signal ?? `exit code ${exit.code}`}`;
    logger.error({ process: name, code: exit.code, signal: exit.signal }, 'process ended, will be restarted');
    await startAgain(supervision);
  }
}

/**
 * Starts a child and keeps it running; throws if the first start fails. `start`'s signal aborts when the child is no
 * longer needed, `signal` when the service stops. `isExplained` reports whether another problem, such as a moved
 * folder, explains an exit, which then does not count as a crash.
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
      const unsteady = history.isCrashLooping(state === 'running' ? startedAt : undefined);
      return { name, state, pid: child?.pid, restarts, lastError, unsteady };
    },
    current: () => supervision.child,
    async stop(graceMs) {
      stopping.abort(new AppError('stopping', 'the service is stopping'));
      if (supervision.state === 'running') await supervision.child?.stop(graceMs);
      // A restart in progress may have started a child.
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
