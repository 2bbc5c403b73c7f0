import type { Snapshot } from './snapshot.ts';
import { findPoint } from './version-points.ts';

/**
 * The first version of a table that had the rows of an `available_at`, as far as that is known still: undefined where
 * the log was begun anew, or kept no ledger, since. `snapshot`: a version that has them. Errors: `log_damaged`.
 */
export async function findRowVersion(
  { tableDir, version: newest, lake }: Snapshot,
  availableAtMs: number,
): Promise<number | undefined> {
  const hadThem = async (version: number): Promise<boolean | undefined> => {
    const point = await findPoint(tableDir, version, lake?.restamps);
    return point === undefined ? undefined : point.availableAtMs >= availableAtMs;
  };
  // Every version up to `before` had not, or nothing is known of it; every one from `since` on had.
  let [before, since] = [-1, newest];
  let isKnown = true;
  while (since - before > 1) {
    const middle = (before + since) >>> 1;
    const had = await hadThem(middle);
    if (had === true) since = middle;
    else [before, isKnown] = [middle, had !== undefined];
  }
  return isKnown ? since : undefined;
}
