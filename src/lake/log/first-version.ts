import type { Snapshot } from './snapshot.ts';
import { findPoint } from './version-points.ts';

/** The version that brought rows, as far as the log and its ledger still know. */
export interface FirstVersion {
  readonly version: number;
  /** The rows may have come earlier: nothing is known of the version before. */
  readonly orEarlier: boolean;
}

/**
 * Finds the version that brought the rows of an `available_at`, Unix milliseconds: the first that had given out that
 * time. `snapshot`: a version that has them. Looks at as many versions as their number has binary digits. Errors:
 * `log_damaged`.
 */
export async function findFirstVersion(
  { tableDir, version: newest, lake }: Snapshot,
  availableAtMs: number,
): Promise<FirstVersion> {
  // Every version up to `before` is older, or nothing is known of it; every one from `since` on has the rows.
  let [before, since] = [-1, Math.max(newest, 0)];
  let isKnown = true;
  while (since - before > 1) {
    const middle = (before + since) >>> 1;
    const point = await findPoint(tableDir, middle, lake?.restamps);
    if (point !== undefined && point.availableAtMs >= availableAtMs) since = middle;
    else [before, isKnown] = [middle, point !== undefined];
  }
  return { version: since, orEarlier: !isKnown };
}
