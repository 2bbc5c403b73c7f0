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
