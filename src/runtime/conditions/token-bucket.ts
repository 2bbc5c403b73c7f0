/** Lets so many through at once, and so many a second over time. */
export interface TokenBucket {
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
