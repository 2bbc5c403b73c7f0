/**
 * Processes: the supervisor's side (this file, child.ts) and the child's (role-process.ts).
 *
 * In: how to start a child. Out: a child that runs, is started again after a growing pause when it ends, and reports
 * once a second what it knows.
 * Invariant: a child outlives its supervisor by a moment only: it ends when the channel between them closes.
 * Crash: the state file of a supervisor that was killed (service-state.ts) is removed by the next one, which knows by
 * process id and start time that nobody runs.
 */
import type { RunningChild } from './child.ts';
import { AppError, describeError, isAppError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { pause } from '../async/retry.ts';

const firstBackoffMs = 100;
const maxBackoffMs = 5000;
/** A child that ran this long before it ended is restarted as if it had never failed. */
const healthyMs = 10_000;
/** A child that was started again so often within so long is a problem, until it has run for as long. */
const unsteadyRestarts = 3;
const unsteadyMs = 60_000;
/**
 * A stop of the whole process group, as systemd's or a terminal's, may reach a child before it reaches this process.
 */
const groupStopMs = 50;

/** What a keeper knows of its child. */
export interface KeeperState {
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
export interface Keeper<C extends RunningChild> {
  state(): KeeperState;
  current(): C | undefined;
  stop(graceMs: number): Promise<void>;
  /** Kills the child, for another to be started: what asks for that is told by whoever asks. */
  renew(): void;
  /** Kills the child without waiting; no other is started. */
  force(): void;
}

/** Why a child may not start for as long as something else lasts, which is reported by itself. */
const waitedFor = ['folder_lost', 'broker_away', 'broker_refused'] as const;

/**
 * Starts a child and keeps it running. `start` is told by its signal when the child is no longer wanted; `signal` is
 * aborted when the service is told to stop: what ends from then on is not started again. Throws when the first start
 * fails: then nothing is kept.
 */
export async function startKeeper<C extends RunningChild>(
  name: string,
  start: (signal: AbortSignal) => Promise<C>,
  logger: Logger,
  signal: AbortSignal,
): Promise<Keeper<C>> {
  const stopping = new AbortController();
  let child: C | undefined = await start(signal);
  let startedAt = performance.now();
  let state: KeeperState['state'] = 'running';
  let restarts = 0;
  let lastError: string | undefined;
  let backoffMs = firstBackoffMs;
  /** When it ended by itself, newest last, as far as that still counts. */
  let ends: number[] = [];
  let unsteady = false;
  let renewed = false;

  function noteEnd(): void {
    const nowMs = performance.now();
    ends = [...ends, nowMs].filter((atMs) => nowMs - atMs < unsteadyMs).slice(-unsteadyRestarts);
    unsteady ||= ends.length === unsteadyRestarts;
  }

  function isUnsteady(): boolean {
    if (state === 'running' && performance.now() - startedAt >= unsteadyMs) unsteady = false;
    return unsteady;
  }

  async function startAgain(): Promise<void> {
    while (!stopping.signal.aborted) {
      state = 'waiting';
      await pause(backoffMs, stopping.signal);
      if (stopping.signal.aborted) return;
      backoffMs = Math.min(backoffMs * 2, maxBackoffMs);
      restarts += 1;
      state = 'starting';
      try {
        child = await start(stopping.signal);
        startedAt = performance.now();
        state = 'running';
        logger.info({ process: name, pid: child.pid, restarts }, 'process restarted');
        return;
      } catch (error) {
        if (stopping.signal.aborted) return;
        lastError = describeError(error);
        // What it waits for then is a problem by itself, and when that has passed, so has this.
        if (!waitedFor.some((code) => isAppError(error, code))) noteEnd();
        logger.error({ process: name, error: lastError, retryInMs: backoffMs }, 'process did not start');
      }
    }
  }

  async function keep(): Promise<void> {
    while (child !== undefined && !stopping.signal.aborted) {
      const exit = await child.exited;
      await pause(groupStopMs, AbortSignal.any([stopping.signal, signal]));
      if (stopping.signal.aborted || signal.aborted) return;
      child = undefined;
      if (!renewed) noteEnd();
      renewed = false;
      if (performance.now() - startedAt >= healthyMs) backoffMs = firstBackoffMs;
      lastError = `ended with ${exit.signal ?? `exit code ${exit.code}`}`;
      logger.error({ process: name, code: exit.code, signal: exit.signal }, 'process ended, will be restarted');
      await startAgain();
    }
  }

  const kept = keep();
  return {
    state: () => ({ name, state, pid: child?.pid, restarts, lastError, unsteady: isUnsteady() }),
    current: () => child,
    async stop(graceMs) {
      stopping.abort(new AppError('stopping', 'the service is stopping'));
      if (state === 'running') await child?.stop(graceMs);
      // A restart that was half-way may have brought a child all the same.
      await kept;
      await child?.stop(graceMs);
      child = undefined;
      state = 'stopped';
    },
    renew() {
      renewed ||= child !== undefined;
      child?.kill();
    },
    force() {
      stopping.abort(new AppError('stopping', 'the service was forced to stop'));
      child?.kill();
    },
  };
}
