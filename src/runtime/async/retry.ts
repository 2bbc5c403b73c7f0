/**
 * Waiting and order in one process: retries and pauses that an abort ends, growing waits (backoff.ts), tasks that are
 * repeated until they are stopped (poll-loop.ts), tasks one after the other (mutex.ts), work in parallel and at half
 * pace, starts side by side. Nothing here outlives its caller, and a crash leaves nothing behind.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { inParallel } from './in-parallel.ts';

export interface RetryOptions {
  /** How long to go on trying, milliseconds. */
  readonly forMs: number;
  /** Pause between tries, milliseconds. */
  readonly everyMs: number;
  readonly signal?: AbortSignal;
  /** Errors it returns false for are thrown at once. */
  readonly retryable?: (error: unknown) => boolean;
}

/**
 * Calls `attempt` until it succeeds, its error is not retryable, time is up, or the signal aborts; throws the last
 * error.
 */
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

/** The wait before the next try of something that failed: it doubles with each try, up to a limit. */
export interface Backoff {
  /** The wait before the next try, milliseconds. */
  currentMs(): number;
  /** Doubles the wait. */
  grow(): void;
  /** Sets the wait back to the first one. */
  reset(): void;
}

/** Creates a backoff that stands at its first wait. */
export function createBackoff(firstMs: number, maxMs: number): Backoff {
  let waitMs = firstMs;
  return {
    currentMs: () => waitMs,
    grow() {
      waitMs = Math.min(waitMs * 2, maxMs);
    },
    reset() {
      waitMs = firstMs;
    },
  };
}

/** Items between two looks at the time. */
const batchSize = 16;
/** Works so long at a stretch, milliseconds. */
const stretchMs = 50;

/**
 * Runs a task for each item, at most `width` at a time, and rests for as long as it worked: for what has to be done
 * some time and must not get in the way of anything. Ends early when the signal aborts.
 */
export async function runAtHalfPace<T>(
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
