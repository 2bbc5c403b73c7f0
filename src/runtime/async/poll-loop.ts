import { clearTimeout, setTimeout } from 'node:timers';
import type { Stoppable } from '../lifecycle.ts';
import { pause } from './retry.ts';

/** Runs a task again and again, never twice at once, with a pause after each run. */
export interface PollLoop extends Stoppable {
  /** Ends the pause: the next run begins at once, or as soon as the one under way has ended. */
  wake(): void;
  /** Ends the loop; resolves when a run under way has ended. No other begins. */
  stop(): Promise<void>;
}

export interface PollLoopOptions {
  /** Pause after each run, milliseconds, give or take a half; a function is asked after each run. */
  readonly everyMs: number | (() => number);
  /** Takes the error of a run; the loop goes on after the pause. */
  readonly onError: (error: unknown) => void;
  /** Begins with a pause instead of a run. */
  readonly pausesFirst?: boolean;
}

/**
 * How long to pause, so that the loops of a process with one interval, or a multiple of it, run at the same moments: the
 * first multiple of the interval since the process began that is at least half of it away. What wakes an idle process
 * costs more than what the loops then do.
 */
function pauseUntilTick(everyMs: number): number {
  if (everyMs === 0) return 0;
  const earliestMs = performance.now() + everyMs / 2;
  return Math.ceil(earliestMs / everyMs) * everyMs - performance.now();
}

/** Starts a loop. Its first run begins before this returns, unless `pausesFirst`. `signal` is aborted by the stop. */
export function startPollLoop(
  run: (signal: AbortSignal) => Promise<void> | void,
  { everyMs, onError, pausesFirst = false }: PollLoopOptions,
): PollLoop {
  const stopping = new AbortController();
  let waking = new AbortController();

  async function rest(): Promise<void> {
    await pause(pauseUntilTick(typeof everyMs === 'number' ? everyMs : everyMs()), waking.signal);
    if (waking.signal.aborted) waking = new AbortController();
  }

  async function repeat(): Promise<void> {
    if (pausesFirst) await rest();
    while (!stopping.signal.aborted) {
      try {
        await run(stopping.signal);
      } catch (error) {
        onError(error);
      }
      if (!stopping.signal.aborted) await rest();
    }
  }

  const repeating = repeat();
  return {
    wake: () => waking.abort(),
    async stop() {
      stopping.abort();
      waking.abort();
      await repeating;
    },
  };
}
