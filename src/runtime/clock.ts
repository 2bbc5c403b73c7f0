/**
 * The service's wall clock. All reads of the time of day use it, so that `TRIBUTARY_CLOCK_OFFSET_SECONDS` moves the
 * whole service and tests can age its data. Durations use `performance.now()`.
 */
export interface Clock {
  nowMs(): number;
  /** Offset from the machine's clock, which the broker uses, ms; absent if there is none. */
  readonly offsetMs?: number;
}

export function createClock(offsetSeconds: number): Clock {
  const offsetMs = offsetSeconds * 1000;
  return { nowMs: () => Date.now() + offsetMs, offsetMs };
}

/** The machine's clock, for comparisons with the broker's. */
export const machineClock = createClock(0);
