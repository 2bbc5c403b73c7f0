/**
 * Waiting and order within one process: retries, delays and backoff, poll-loop.ts, semaphore.ts, rate-limits.ts and
 * in-parallel.ts. A crash leaves nothing behind.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { inParallel } from './in-parallel.ts';

export interface RetryOptions {
  /** Total time for attempts, ms. */
  readonly forMs: number;
  readonly everyMs: number;
  readonly signal?: AbortSignal;
  /** Returns false for errors that are thrown at once. */
  readonly retryable?: (error: unknown) => boolean;
}

/** Calls `attempt` until success, an error that is not retryable, a timeout or an abort. Throws the last error. */
export async function retry<T>(attempt: () => Promise<T>, options: RetryOptions): Promise<T> {
  const deadline = performance.now() + options.forMs;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      const final = options.retryable?.(error) === false || performance.now() + options.everyMs >= deadline;
      if (final || options.signal?.aborted === true) throw error;
      await pause(options.everyMs, options.signal);
    }
  }
}

/** Waits; an abort ends the wait early without an error. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted === true) return;
  await sleep(ms, undefined, signal === undefined ? {} : { signal }).catch(() => undefined);
}

/** Creates an exponential backoff with a maximum delay. */
export function createBackoff(firstMs: number, maxMs: number) {
  let waitMs = firstMs;
  return {
    /** Returns the delay before the next attempt, ms. */
    currentMs: (): number => waitMs,
    grow(): void {
      waitMs = Math.min(waitMs * 2, maxMs);
    },
    reset(): void {
      waitMs = firstMs;
    },
  };
}

export type Backoff = ReturnType<typeof createBackoff>;

/** Number of items between two checks of the time. */
const batchSize = 16;
/** Time of continuous work, ms. */
const stretchMs = 50;

/** Runs a task per item, at most `width` at a time, and sleeps as long as it has worked. An abort ends it early. */
export async function runAtHalfDutyCycle<T>(
  items: readonly T[],
  width: number,
  task: (item: T) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  let sinceMs = performance.now();
  for (let from = 0; from < items.length && !signal.aborted; from += batchSize) {
    await inParallel(items.slice(from, from + batchSize), width, task);
    const workedMs = performance.now() - sinceMs;
    if (workedMs < stretchMs) continue;
    await pause(workedMs, signal);
    sinceMs = performance.now();
  }
}
