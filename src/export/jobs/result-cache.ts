/** Results of queries by the versions of the tables that they read. */

/** Largest number of cached results. */
const maxResults = 200;
/** A result is reused for this multiple of its duration, although the tables have newer versions. */
const reuseFactor = 20;

interface CachedResult<T> {
  readonly versions: string | undefined;
  readonly result: T;
  readonly reusedUntilMs: number;
}

/**
 * Caches results in memory. A query thus takes at most a twentieth of the time, even if each flush makes a new version.
 * The least recently stored result goes first.
 */
export function createResultCache<T>() {
  const results = new Map<string, CachedResult<T>>();
  return {
    /**
     * Returns the cached result of a key, or runs the query. `versions`: those of the tables that it reads, before it
     * begins; undefined if unknown. Only results that `isLasting` accepts are stored.
     */
    async find(
      key: string,
      versions: string | undefined,
      isLasting: (result: T) => boolean,
      query: () => Promise<T>,
    ): Promise<T> {
      const cached = results.get(key);
      const isCurrent = versions !== undefined && cached?.versions === versions;
      if (cached !== undefined && (isCurrent || performance.now() < cached.reusedUntilMs)) return cached.result;
      const begunMs = performance.now();
      const result = await query();
      if (!isLasting(result)) return result;
      results.delete(key);
      const endMs = performance.now();
      results.set(key, { versions, result, reusedUntilMs: endMs + reuseFactor * (endMs - begunMs) });
      const [oldest] = results.keys();
      if (results.size > maxResults && oldest !== undefined) results.delete(oldest);
      return result;
    },
  };
}
