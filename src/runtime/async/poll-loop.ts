import { clearTimeout, setTimeout } from 'node:timers';
import type { Stoppable } from '../lifecycle.ts';

/** Runs a task again and again, never twice at once, with a pause after each run. */
export interface PollLoop extends Stoppable {
  /** Ends the pause: the next run begins at once, or as soon as the one under way has ended. */
  wake(): void;
  /** Ends the loop; resolves when a run under way has ended. No other begins. */
  stop(): Promise<void>;
}

interface PollLoopOptions {
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

/**
 * Starts a loop. Its first run begins before this returns, unless `pausesFirst`. `signal` is aborted by the stop. A run
 * that returns no promise costs no more than its timer: an idle service has some dozens of them a second.
 */
export function startPollLoop(
  run: (signal: AbortSignal) => Promise<void> | void,
  { everyMs, onError, pausesFirst = false }: PollLoopOptions,
): PollLoop {
  const stopping = new AbortController();
  const { signal } = stopping;
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<void> | undefined;
  let woken = false;

  function rest(): void {
    running = undefined;
    if (signal.aborted) return;
    const pauseMs = woken ? 0 : pauseUntilTick(typeof everyMs === 'number' ? everyMs : everyMs());
    woken = false;
    timer = setTimeout(begin, pauseMs);
  }

  function begin(): void {
    timer = undefined;
    try {
      const result = run(signal);
      if (result !== undefined) {
        running = result.catch(onError).then(rest);
        return;
      }
    } catch (error) {
      onError(error);
    }
    rest();
  }

  if (pausesFirst) rest();
  else begin();
  return {
    wake() {
      woken = true;
      if (timer === undefined) return;
      clearTimeout(timer);
      rest();
    },
    async stop() {
      stopping.abort();
      clearTimeout(timer);
      await running;
    },
  };
}
