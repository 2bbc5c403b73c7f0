import { clearTimeout, setTimeout } from 'node:timers';
import type { Stoppable } from '../lifecycle.ts';

/** Runs a task repeatedly and never concurrently, with a delay after each run. */
export interface PollLoop extends Stoppable {
  /** Starts the next run at once, or when the current one has ended. */
  wake(): void;
  stop(): Promise<void>;
}

interface PollLoopOptions {
  /** Delay after each run, ms, plus or minus half; a function is called after each run. */
  readonly everyMs: number | (() => number);
  /** Receives the error of a run; the loop continues after the delay. */
  readonly onError: (error: unknown) => void;
  /** Starts with a delay instead of a run. */
  readonly pausesFirst?: boolean;
}

/** Returns the delay to a multiple of the interval. Loops of one interval run together, which saves wake-ups. */
function pauseUntilTick(everyMs: number): number {
  if (everyMs === 0) return 0;
  const earliestMs = performance.now() + everyMs / 2;
  return Math.ceil(earliestMs / everyMs) * everyMs - performance.now();
}

/** Starts a loop; the first run begins at once unless `pausesFirst`. `stop` aborts the signal. */
export function startPollLoop(
  run: (signal: AbortSignal) => Promise<void> | void,
  { everyMs, onError, pausesFirst = false }: PollLoopOptions,
): PollLoop {
  const stopping = new AbortController();
  const { signal } = stopping;
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<void> | undefined;
  let woken = false;

  function scheduleNext(): void {
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
        running = result.catch(onError).then(scheduleNext);
        return;
      }
    } catch (error) {
      onError(error);
    }
    scheduleNext();
  }

  if (pausesFirst) scheduleNext();
  else begin();
  return {
    wake() {
      woken = true;
      if (timer === undefined) return;
      clearTimeout(timer);
      scheduleNext();
    },
    async stop() {
      stopping.abort();
      clearTimeout(timer);
      await running;
    },
  };
}
