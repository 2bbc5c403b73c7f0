/** How wrong secrets are held against whoever gives them. */
export interface LockOutRule {
  /** Wrong secrets that are let pass before the first wait. */
  readonly free: number;
  /** The first wait; each further wrong secret doubles it, up to the longest. Milliseconds. */
  readonly firstMs: number;
  readonly longestMs: number;
  /** Without a wrong secret for so long, those of before are forgotten. Milliseconds. */
  readonly forgetMs: number;
}

/** Counts wrong secrets by key: a user's id, or an address. Times are monotonic, as `performance.now()`. */
export interface LockOut {
  /** Seconds until another try is looked at; 0: now. */
  waitSeconds(key: string, nowMs: number): number;
  /** Counts a wrong secret. */
  fail(key: string, nowMs: number): void;
  /** Forgets the wrong ones: a right secret was given. */
  clear(key: string): void;
}

interface Failures {
  count: number;
  lastMs: number;
}

/** Keys that are remembered; the one whose last failure is longest ago goes first. */
const rememberedKeys = 10_000;

/** Creates a lock-out that has counted nothing. */
export function createLockOut({ free, firstMs, longestMs, forgetMs }: LockOutRule): LockOut {
  const byKey = new Map<string, Failures>();

  function find(key: string, nowMs: number): Failures | undefined {
    const failures = byKey.get(key);
    return failures === undefined || nowMs - failures.lastMs >= forgetMs ? undefined : failures;
  }

  return {
    waitSeconds(key, nowMs) {
      const failures = find(key, nowMs);
      if (failures === undefined || failures.count < free) return 0;
      const waitMs = Math.min(firstMs * 2 ** Math.min(failures.count - free, 30), longestMs);
      return Math.max(0, Math.ceil((failures.lastMs + waitMs - nowMs) / 1000));
    },
    fail(key, nowMs) {
      const count = (find(key, nowMs)?.count ?? 0) + 1;
      // Put in anew, so that the map is in the order of the last failures.
      byKey.delete(key);
      byKey.set(key, { count, lastMs: nowMs });
      if (byKey.size > rememberedKeys) byKey.delete(byKey.keys().next().value ?? '');
    },
    clear: (key) => void byKey.delete(key),
  };
}
