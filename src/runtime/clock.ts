/**
 * The service's wall clock. Everything that reads the time of day takes a Clock, so that an offset
 * (`TRIBUTARY_CLOCK_OFFSET_SECONDS`) moves the whole service at once and ages and expiries can be tested.
 * Durations are measured with `performance.now()`, never with this clock.
 */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  nowMs(): number;
  /** How far it was moved from the machine's, by which others such as the broker go, milliseconds; absent: not at all. */
  readonly offsetMs?: number;
}

/** Creates a clock that runs `offsetSeconds` ahead of the machine's. */
export function createClock(offsetSeconds: number): Clock {
  const offsetMs = offsetSeconds * 1000;
  return { nowMs: () => Date.now() + offsetMs, offsetMs };
}

/** The machine's own clock, with which the broker's is compared: it knows no offset of the service either. */
export const machineClock = createClock(0);
