/**
 * Waiting and order in one process: retries and pauses that an abort ends, growing waits (backoff.ts), tasks that are
 * repeated until they are stopped (poll-loop.ts), tasks one after the other (mutex.ts), work in parallel and at half
 * pace, starts side by side. Nothing here outlives its caller, and a crash leaves nothing behind.
 */
import { setTimeout as sleep } from 'node:timers/promises';

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
