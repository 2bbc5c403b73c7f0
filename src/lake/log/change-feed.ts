import { AppError } from '../../runtime/errors.ts';
import type { Snapshot } from './snapshot.ts';
import { findPoint, toPoint } from './version-points.ts';
import { unmarked, type VersionPoint } from './version-ledger.ts';

/**
 * A place in the history of a table, `VERSION-MARK`, as an answer names it and a later call gives it back. The mark is
 * that of the commit which brought the newest rows.
 */
export interface FeedPlace {
  readonly version: number;
  /** Absent where the caller knows the number only. */
  readonly mark: string | undefined;
}

const placePattern = /^(0|[1-9]\d{0,11})(?:-([0-9a-f]{8}))?$/;

/** Reads a place, as `nextPlace` writes it, or a version alone; undefined for anything else. */
export function parsePlace(text: string): FeedPlace | undefined {
  const [, version, mark] = placePattern.exec(text) ?? [];
  return version === undefined ? undefined : { version: Number(version), mark };
}

const markIn = ({ mark = unmarked }: Pick<VersionPoint, 'mark'>): string => mark;

/** The place from which to ask for what comes after a snapshot. */
export function nextPlace({ version, lake }: Snapshot): string {
  // A table without rows does not exist yet: its first version has none either.
  if (version < 0 || lake === undefined) return String(Math.max(version, 0));
  return `${version}-${markIn(toPoint(version, lake))}`;
}

/** Refuses a place whose version is another one in this history. Errors: `not_found`, with the hint. */
export function assertSameHistory({ version, mark }: FeedPlace, point: Pick<VersionPoint, 'mark'>, hint: string): void {
  if (mark === undefined || mark === markIn(point)) return;
  throw new AppError(
    'not_found',
    `version ${version} is another one by now: the lake was restored from a backup after it was named`,
    { hint },
  );
}

const fromTheStart = 'Ask for everything once, and go on from the place that the answer names.';

/**
 * The `available_at`, Unix milliseconds, that the rows of a snapshot have passed which came after a place. Errors:
 * `not_found` where the place is ahead of the snapshot, of another history, or nobody knows it any more; `log_damaged`.
 */
export async function findSinceMs(place: FeedPlace, snapshot: Snapshot): Promise<number> {
  const { version } = place;
  const newest = Math.max(snapshot.version, 0);
  if (version > newest)
    throw new AppError('not_found', `version ${version} is later than the one that is read, ${newest}`, {
      hint: fromTheStart,
    });
  // The first version makes the table and brings no rows, whether anybody remembers it or not.
  if (version === 0) return 0;
  const point = await findPoint(snapshot.tableDir, version, snapshot.lake?.restamps);
  if (point === undefined)
    throw new AppError('not_found', `nothing is known of version ${version} any more`, { hint: fromTheStart });
  assertSameHistory(place, point, fromTheStart);
  return point.availableAtMs;
}
