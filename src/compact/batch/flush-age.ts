/**
 * When a batch has waited long enough. Its age counts from its oldest message, and what the flush itself takes counts as
 * well: an event is to be in the lake when the flush age is over.
 */
export interface FlushAge {
  /** How long the next pull may wait for more, milliseconds. */
  leftMs(): number;
  /** Told when a pull has ended. `isAll`: it has brought everything there was, so what comes next is newer. */
  pulled(isAll: boolean): void;
  /** Told how long a flush took, from the end of its pull on. */
  flushed(durationMs: number): void;
}

/** A pull needs a moment to bring what waits in the stream already. */
const leastMs = 500;

/**
 * Creates it for a flush age. The oldest message is no older than the end of the pull that has left nothing behind:
 * times of the broker's clock are not needed, which need not be that of this machine. What waits at the start may be of
 * any age, and is taken in at once.
 */
export function createFlushAge(flushAgeMs: number, monotonicMs: () => number = () => performance.now()): FlushAge {
  let emptyAtMs = -Infinity;
  let flushMs = 0;
  return {
    leftMs() {
      // A flush that takes longer than half of its age is better off with more events in it.
      const ageMs = flushAgeMs - Math.min(flushMs, flushAgeMs / 2);
      return Math.min(flushAgeMs, Math.max(leastMs, emptyAtMs + ageMs - monotonicMs()));
    },
    pulled(isAll) {
      if (isAll) emptyAtMs = monotonicMs();
    },
    flushed(durationMs) {
      flushMs = durationMs;
    },
  };
}
