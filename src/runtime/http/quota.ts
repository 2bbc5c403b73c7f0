/** Limit on calls: at most `limit` in each window of `windowMs`. */
export interface Quota {
  readonly limit: number;
  readonly windowMs: number;
}

/**
 * Counts calls by key against limits. Time is monotonic (`performance.now()`): a clock step neither blocks nor opens
 * it.
 */
interface QuotaCounter {
  /**
   * Counts a call. Undefined: it is within every limit. Otherwise: seconds until one may be made; the call is not
   * counted.
   */
  take(key: string, nowMs: number): number | undefined;
}

interface Window {
  startMs: number;
  current: number;
  previous: number;
}

const rememberedKeys = 100_000;

/**
 * Calls in the last `windowMs`, estimated from two fixed windows: the previous one fades out as the current one fills.
 */
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

/** Creates a counter for all limits of a quota at once; no limits: nothing is ever refused. */
export function createQuotaCounter(quotas: readonly Quota[]): QuotaCounter {
  const byKey = new Map<string, Window[]>();

  function windowsOf(key: string, nowMs: number): Window[] {
    const known = byKey.get(key);
    if (known !== undefined) return known;
    // A flood of keys must not fill the memory: the oldest key starts anew.
    if (byKey.size >= rememberedKeys) byKey.delete(byKey.keys().next().value ?? '');
    const windows = quotas.map(() => ({ startMs: nowMs, current: 0, previous: 0 }));
    byKey.set(key, windows);
    return windows;
  }

  return {
    take(key, nowMs) {
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
