/** A log for what any stranger can make happen again and again: it must not fill the disk. */
export interface BoundedLog {
  /** Writes a line with the fields, or counts it: `leftOut` in the next line says how many were not written. */
  add(fields: Readonly<Record<string, unknown>>): void;
}

interface LogBound {
  readonly maxLines: number;
  /** Milliseconds, on the monotonic clock. */
  readonly windowMs: number;
}

/** Creates a log that hands at most `maxLines` in each window to `write`. */
export function createBoundedLog(
  write: (fields: Readonly<Record<string, unknown>>) => void,
  { maxLines, windowMs }: LogBound,
): BoundedLog {
  let window = 0;
  let lines = 0;
  let leftOut = 0;
  return {
    add(fields) {
      const now = Math.floor(performance.now() / windowMs);
      if (now !== window) {
        window = now;
        lines = 0;
      }
      lines += 1;
      if (lines > maxLines) {
        leftOut += 1;
        return;
      }
      write(leftOut === 0 ? fields : { ...fields, leftOut });
      leftOut = 0;
    },
  };
}

/** The bound of lines about requests that failed inside the service. */
export const failureBound: LogBound = { maxLines: 10, windowMs: 60_000 };

/** Lets so many through at once, and so many a second over time. */
interface TokenBucket {
  /** Takes a token; says whether there was one. */
  take(): boolean;
}

/** Creates a full bucket. Time is monotonic: a step of the clock neither fills nor empties it. */
export function createTokenBucket(size: number, perSecond: number): TokenBucket {
  let tokens = size;
  let filledMs = performance.now();
  return {
    take() {
      const nowMs = performance.now();
      tokens = Math.min(size, tokens + ((nowMs - filledMs) / 1000) * perSecond);
      filledMs = nowMs;
      if (tokens < 1) return false;
      tokens -= 1;
      return true;
    },
  };
}

/** Keys that have a bucket of their own; a flood of keys must not fill the memory. */
const maxKeys = 10_000;

/** Creates one bucket for each key, made when it is first asked for. */
export function createTokenBuckets(size: number, perSecond: number): { take(key: string | number): boolean } {
  const buckets = new Map<string | number, TokenBucket>();
  return {
    take(key) {
      let bucket = buckets.get(key);
      if (bucket === undefined) {
        if (buckets.size >= maxKeys) buckets.clear();
        bucket = createTokenBucket(size, perSecond);
        buckets.set(key, bucket);
      }
      return bucket.take();
    },
  };
}
