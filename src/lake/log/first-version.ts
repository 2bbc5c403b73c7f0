import type { Snapshot } from './snapshot.ts';
import type { VersionPoint } from './version-ledger.ts';
import { findPoint } from './version-points.ts';

/** The version that brought rows, as far as the log and its ledger still know. */
export interface FirstVersion {
  readonly version: number;
  /** The rows may have come earlier: nothing is known of the version before. */
  readonly orEarlier: boolean;
}

/** Finds versions of one table; for one caller at a time. */
export interface VersionSearch {
  /**
   * Finds the version that brought the rows of an `available_at`, Unix milliseconds: the first that had given out that
   * time. `snapshot`: a version that has them. Looks at as many versions as their number has binary digits. Errors:
   * `log_damaged`.
   */
  find(snapshot: Snapshot, availableAtMs: number): Promise<FirstVersion>;
}

/** Points that are remembered, of 100 bytes each. */
const mostRemembered = 10_000;

/**
 * Creates a search that remembers the points it has met. They lie at powers of two from each other, whatever the newest
 * version is, so that searches meet the same ones while the table goes on.
 */
export function createVersionSearch(): VersionSearch {
  const points = new Map<number, VersionPoint>();
  let repairedAt = -1;

  async function pointOf({ tableDir, lake }: Snapshot, version: number): Promise<VersionPoint | undefined> {
    const remembered = points.get(version);
    if (remembered !== undefined) return remembered;
    const point = await findPoint(tableDir, version, lake?.restamps);
    if (points.size >= mostRemembered) points.clear();
    // What nobody knows yet may be known later.
    if (point !== undefined) points.set(version, point);
    return point;
  }

  return {
    async find(snapshot, availableAtMs) {
      // A repair of the clock has given what was before it other times.
      const newestRepair = snapshot.lake?.restamps?.at(-1)?.version ?? -1;
      if (newestRepair !== repairedAt) points.clear();
      repairedAt = newestRepair;
      // Every version up to `before` is older, or nothing is known of it; every one from `since` on has the rows.
      let [before, since] = [-1, Math.max(snapshot.version, 0)];
      let isKnown = true;
      while (since - before > 1) {
        const middle = before + 2 ** Math.floor(Math.log2(since - before - 1));
        const point = await pointOf(snapshot, middle);
        if (point !== undefined && point.availableAtMs >= availableAtMs) since = middle;
        else [before, isKnown] = [middle, point !== undefined];
      }
      return { version: since, orEarlier: !isKnown };
    },
  };
}
