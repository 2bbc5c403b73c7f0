/** Maximum number of buckets, so that many keys cannot exhaust the memory. */
const maxBuckets = 10_000;

/** Creates token buckets: `size` calls per key at once, `perSecond` over time. Time is monotonic. */
export function createTokenBuckets(size: number, perSecond: number) {
  const buckets = new Map<string | number, { tokens: number; filledMs: number }>();
  return {
    /** Reports whether the bucket of a key had a token, and removes it. */
    take(key: string | number = ''): boolean {
      const nowMs = performance.now();
      const { tokens, filledMs } = buckets.get(key) ?? { tokens: size, filledMs: nowMs };
      const filled = Math.min(size, tokens + ((nowMs - filledMs) / 1000) * perSecond);
      if (buckets.size >= maxBuckets && !buckets.has(key)) buckets.clear();
      buckets.set(key, { tokens: filled < 1 ? filled : filled - 1, filledMs: nowMs });
      return filled >= 1;
    },
  };
}

export interface Quota {
  readonly limit: number;
  readonly windowMs: number;
}

interface Window {
  startMs: number;
  current: number;
  previous: number;
}

const rememberedKeys = 100_000;

/** Estimates the calls in the last `windowMs` from two fixed windows: the previous one fades out. */
function used(window: Window, windowMs: number, nowMs: number): number {
  const share = 1 - (nowMs - window.startMs) / windowMs;
  return window.current + window.previous * share;
}

function advance(window: Window, windowMs: number, nowMs: number): void {
  const passed = Math.floor((nowMs - window.startMs) / windowMs);
  if (passed <= 0) return;
  window.previous = passed === 1 ? window.current : 0;
  window.current = 0;
  window.startMs += passed * windowMs;
}

/** Counts calls by key against several limits; none accepts all. Token buckets would allow twice a limit per window. */
export function createQuotaCounter(quotas: readonly Quota[]) {
  const byKey = new Map<string, Window[]>();

  function windowsOf(key: string, nowMs: number): Window[] {
    const known = byKey.get(key);
    if (known !== undefined) return known;
    // Many keys must not exhaust the memory: the oldest one is dropped.
    if (byKey.size >= rememberedKeys) byKey.delete(byKey.keys().next().value ?? '');
    const windows = quotas.map(() => ({ startMs: nowMs, current: 0, previous: 0 }));
    byKey.set(key, windows);
    return windows;
  }

  return {
    /** Counts a call and returns undefined; beyond a limit it returns the wait, s, and counts nothing. */
    take(key: string, nowMs: number): number | undefined {
      if (quotas.length === 0) return undefined;
      const windows = windowsOf(key, nowMs);
      let waitMs = 0;
      quotas.forEach(({ limit, windowMs }, index) => {
        const window = windows[index];
        if (window === undefined) return;
        advance(window, windowMs, nowMs);
        if (used(window, windowMs, nowMs) + 1 > limit + 1e-9)
          waitMs = Math.max(waitMs, window.startMs + windowMs - nowMs);
      });
      if (waitMs > 0) return Math.ceil(waitMs / 1000);
      for (const window of windows) window.current += 1;
      return undefined;
    },
  };
}
