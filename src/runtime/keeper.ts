import type { RunningChild } from './child.ts';
import { AppError, describeError } from './errors.ts';
import type { Logger } from './logger.ts';
import { pause } from './retry.ts';

const firstBackoffMs = 100;
const maxBackoffMs = 5000;
/** A child that ran this long before it ended is restarted as if it had never failed. */
const healthyMs = 10_000;

/** What a keeper knows of its child. */
export interface KeeperState {
  readonly name: string;
  readonly state: 'starting' | 'running' | 'waiting' | 'stopped';
  readonly pid: number | undefined;
  readonly restarts: number;
  /** Why the last one ended or did not start; undefined while nothing went wrong. */
  readonly lastError: string | undefined;
}

/** Keeps one child running: when it ends, starts another after a growing pause, until it is stopped. */
export interface Keeper<C extends RunningChild> {
  state(): KeeperState;
  current(): C | undefined;
  stop(graceMs: number): Promise<void>;
  /** Kills the child without waiting; no other is started. */
  force(): void;
}

/**
 * Starts a child and keeps it running. `start` is told by its signal when the child is no longer wanted; `signal` is that of
 * the first start. Throws when the first start fails: then nothing is kept.
 */
export async function startKeeper<C extends RunningChild>(name: string, start: (signal: AbortSignal) => Promise<C>, logger: Logger, signal: AbortSignal): Promise<Keeper<C>> {
  const stopping = new AbortController();
  let child: C | undefined = await start(signal);
  let startedAt = performance.now();
  let state: KeeperState['state'] = 'running';
  let restarts = 0;
  let lastError: string | undefined;
  let backoffMs = firstBackoffMs;

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
        logger.error({ process: name, error: lastError, retryInMs: backoffMs }, 'process did not start');
      }
    }
  }

  async function keep(): Promise<void> {
    while (child !== undefined && !stopping.signal.aborted) {
      const exit = await child.exited;
      if (stopping.signal.aborted) return;
      child = undefined;
      if (performance.now() - startedAt >= healthyMs) backoffMs = firstBackoffMs;
      lastError = `ended with ${exit.signal ?? `exit code ${exit.code}`}`;
      logger.error({ process: name, code: exit.code, signal: exit.signal }, 'process ended, will be restarted');
      await startAgain();
    }
  }

  const kept = keep();
  return {
    state: () => ({ name, state, pid: child?.pid, restarts, lastError }),
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
    force() {
      stopping.abort(new AppError('stopping', 'the service was forced to stop'));
      child?.kill();
    },
  };
}
