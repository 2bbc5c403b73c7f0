import type { BoundValue } from '../export-query.ts';
import type { ExportApp } from '../../jobs/export-spec.ts';
import { filesSql } from '../export-query.ts';
import type { QueryEngine } from '../query-engine.ts';
import { ofApps } from './row-bounds.ts';
import { unknown, type RowGroup } from './row-groups.ts';

/** Rows that are counted by their app, at most: some tenths of a second. */
const mostCounted = 20_000_000;

/** A row group whose place in its file is known. */
export type Placed = RowGroup & Required<Pick<RowGroup, 'place'>>;

/** Leaves of the files' rows those of the apps that lie in one of the parts. */
export const partsSql = `JOIN (SELECT unnest($part) AS part, unnest($file) AS file, unnest($fromRow) AS from_row, unnest($beforeRow) AS before_row) AS parts
    ON events.file_index = parts.file AND events.file_row_number >= parts.from_row AND events.file_row_number < parts.before_row
  WHERE events.id_app IN (SELECT id_app FROM apps)`;

/** The files in which row groups lie, behind those of `before`, and what `partsSql` takes: each group by its number. */
export function partsOf(
  groups: readonly (Placed & { readonly part: number })[],
  before: readonly string[] = [],
): { readonly files: readonly string[]; readonly values: Readonly<Record<string, BoundValue>> } {
  const files = [...before, ...new Set(groups.map(({ place }) => place.file))];
  const places = new Map(files.map((file, index) => [file, BigInt(index)]));
  const values = {
    part: groups.map(({ part }) => BigInt(part)),
    file: groups.map(({ place }) => places.get(place.file) ?? 0n),
    fromRow: groups.map(({ place }) => BigInt(place.fromRow)),
    beforeRow: groups.map(({ place, rows }) => BigInt(place.fromRow + rows)),
  };
  return { files, values };
}

/** A row group of which an account is told nothing: how many of its rows are its own, nobody has counted. */
const hidden = ({ isOwn }: RowGroup): RowGroup => ({ rows: Infinity, isOwn, column: () => unknown });

/**
 * Counts the rows of some apps in the row groups that have rows of others too: these are the only columns that are read.
 * Without it a bound of one account's rows would tell how many another has beside them. Groups without any are left out; of
 * those that would be too much to read nothing is known. Errors: `sql` where a file cannot be read.
 */
export async function countApps(
  engine: QueryEngine,
  groups: readonly RowGroup[],
  apps: readonly ExportApp[],
): Promise<RowGroup[]> {
  const isOne = ofApps(apps);
  const possible = groups.filter((group) => isOne(group).most > 0);
  const mixed = new Set(possible.filter((group) => isOne(group).least < isOne(group).most));
  let left = mostCounted;
  const read = [...possible.entries()].flatMap(([part, group]) => {
    const { place, rows } = group;
    if (!mixed.has(group) || place === undefined || rows > left) return [];
    left -= rows;
    return [{ ...group, place, part }];
  });
  const counts = new Map<number, number>();
  if (read.length > 0) {
    const { files, values } = partsOf(read);
    const sql = `SELECT parts.part, count(*) AS rows FROM ${filesSql} AS events ${partsSql} GROUP BY parts.part`;
    for (const row of await engine.rows({ sql, values }, files)) counts.set(Number(row['part']), Number(row['rows']));
  }
  const counted = new Set(read.map(({ part }) => part));
  return possible.flatMap((group, part) => {
    if (!mixed.has(group)) return [group];
    if (!counted.has(part)) return [hidden(group)];
    const own = counts.get(part) ?? 0;
    return own === 0 ? [] : [{ ...group, ofApps: own }];
  });
}
