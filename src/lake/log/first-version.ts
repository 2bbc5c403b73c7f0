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
 * time. Looks at as many versions as their number has binary digits. Errors: `log_damaged`.
 */
export async function findFirstVersion(
  { tableDir, version: newest, lake }: Snapshot,
  availableAtMs: number,
): Promise<FirstVersion> {
  const findTime = async (version: number): Promise<number | undefined> =>
    (await findPoint(tableDir, version, lake?.restamps))?.availableAtMs;
  // Every version before `low` is older or unknown, `high` has the rows.
  let [low, high] = [0, Math.max(newest, 0)];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (((await findTime(middle)) ?? -1) >= availableAtMs) high = middle;
    else low = middle + 1;
  }
  return { version: high, orEarlier: high > 0 && (await findTime(high - 1)) === undefined };
}
