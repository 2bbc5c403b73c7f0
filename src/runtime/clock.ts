import { pause } from './async/retry.ts';

/** The wall clock with the offset of `TRIBUTARY_CLOCK_OFFSET_SECONDS`. Durations use `performance.now()`. */
export interface Clock {
  nowMs(): number;
  /** Offset from the machine's clock, which the broker uses, ms. */
  readonly offsetMs?: number;
}

export function createClock(offsetSeconds: number): Clock {
  const offsetMs = offsetSeconds * 1000;
  return { nowMs: () => Date.now() + offsetMs, offsetMs };
}

/** The machine's clock, for comparisons with the broker's. */
export const machineClock = createClock(0);

/** Durations within one process, which a test can simulate. They include the time for which the process was stopped. */
export interface MonotonicClock {
  nowMs(): number;
  /** Waits; an abort ends the wait early without an error. */
  pause(ms: number, signal?: AbortSignal): Promise<void>;
}

export const monotonicClock: MonotonicClock = { nowMs: () => performance.now(), pause };
