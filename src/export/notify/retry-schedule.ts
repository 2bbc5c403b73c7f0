import { setMaxListeners } from 'node:events';
import { withAnySignal } from '../../runtime/async/in-parallel.ts';
import { pause } from '../../runtime/async/retry.ts';
import type { Clock } from '../../runtime/clock.ts';

export interface DeliveryOptions {
  readonly timeoutMs: number;
  /** Waits before the second attempt, the third and so on, ms; the last one repeats. */
  readonly retryScheduleMs: readonly number[];
}

export const defaultDeliveryOptions: DeliveryOptions = {
  timeoutMs: 10_000,
  retryScheduleMs: [10_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000],
};

/** Returns the wait after a number of failed attempts, ms. */
export function retryDelayAfter(failures: number, { retryScheduleMs }: DeliveryOptions): number {
  return retryScheduleMs[Math.min(failures, retryScheduleMs.length) - 1] ?? 0;
}

/** Returns the longest wait between two attempts, ms. */
export function maxRetryDelay({ retryScheduleMs }: DeliveryOptions): number {
  return Math.max(...retryScheduleMs);
}

/** Reports whether an attempt is due. One that is further ahead than any wait is due: the clock was set back. */
export function isAttemptDue(nextMs: number, nowMs: number, options: DeliveryOptions): boolean {
  return nextMs <= nowMs || nextMs - nowMs > maxRetryDelay(options);
}

/** Sends what is due and returns when the next attempt is, Unix ms; undefined if nothing is left to send. */
type Step = () => Promise<number | undefined>;

interface Loop {
  isWoken: boolean;
  nextMs: number;
  wake: () => void;
  done: Promise<void>;
}

/**
 * Creates loops by key that repeat a step at the time that it returned, until it returns undefined or the signal
 * aborts. A failed step is repeated after the wait of its failures.
 */
export function createRetryLoops(
  clock: Clock,
  options: DeliveryOptions,
  signal: AbortSignal,
  onError: (key: number | string, error: unknown) => void,
) {
  const loops = new Map<number | string, Loop>();
  // Each loop, or its step, waits for the signal: Node would take more than ten for a leak.
  setMaxListeners(0, signal);

  async function repeat(key: number | string, step: Step, loop: Loop): Promise<void> {
    for (let failures = 0; !signal.aborted;) {
      loop.isWoken = false;
      let nextMs: number | undefined;
      try {
        nextMs = await step();
        failures = 0;
      } catch (error) {
        failures += 1;
        onError(key, error);
        nextMs = clock.nowMs() + retryDelayAfter(failures, options);
      }
      if (loop.isWoken) continue;
      if (nextMs === undefined) break;
      const waking = new AbortController();
      loop.wake = () => waking.abort();
      loop.nextMs = nextMs;
      // A clock that was set back must not prolong the wait.
      const waitMs = Math.min(Math.max(nextMs - clock.nowMs(), 0), maxRetryDelay(options));
      await withAnySignal([signal, waking.signal], (either) => pause(waitMs, either));
      loop.nextMs = Infinity;
    }
    loops.delete(key);
  }

  return {
    /** Starts a loop; one that runs already is woken. */
    start(key: number | string, step: Step): void {
      if (signal.aborted) return;
      const running = loops.get(key);
      if (running !== undefined) {
        running.isWoken = true;
        running.wake();
        return;
      }
      const loop: Loop = { isWoken: false, nextMs: Infinity, wake: () => undefined, done: Promise.resolve() };
      loops.set(key, loop);
      loop.done = repeat(key, step, loop);
    },
    wakeDue(): void {
      for (const { nextMs, wake } of loops.values())
        if (nextMs !== Infinity && isAttemptDue(nextMs, clock.nowMs(), options)) wake();
    },
    /** Resolves when every loop has ended; the caller has aborted the signal. */
    ended: async (): Promise<void> => void (await Promise.all([...loops.values()].map(({ done }) => done))),
  };
}
