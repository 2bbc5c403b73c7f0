import path from 'node:path';
import { AppError } from '../../runtime/errors.ts';
import { listNames } from '../../runtime/files/folder-names.ts';
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

/** The table beside this one that has a place; undefined for none. */
async function findTableOf({ version, mark }: FeedPlace, tableDir: string): Promise<string | undefined> {
  const lakeDir = path.dirname(tableDir);
  const others = (await listNames(lakeDir)).filter((name) => name !== path.basename(tableDir));
  for (const name of others) {
    const point = await findPoint(path.join(lakeDir, name), version).catch(() => undefined);
    if (point?.mark !== undefined && point.mark === mark) return name;
  }
  return undefined;
}

/** Refuses a place that is of another table, or of another history of this one. Errors: `not_found`, with the hint. */
export async function assertSameHistory(
  place: FeedPlace,
  point: Pick<VersionPoint, 'mark'>,
  { tableDir }: Pick<Snapshot, 'tableDir'>,
  hint: string,
): Promise<void> {
  const { version, mark } = place;
  if (mark === undefined || mark === markIn(point)) return;
  const table = await findTableOf(place, tableDir);
  throw new AppError(
    'not_found',
    table === undefined
      ? `version ${version} is another one by now: the lake was restored from a backup after it was named`
      : `${version}-${mark} is a place of the table ${table}, not of ${path.basename(tableDir)}: each dataset has its own`,
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
  await assertSameHistory(place, point, snapshot, fromTheStart);
  return point.availableAtMs;
}
