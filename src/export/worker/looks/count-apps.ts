import type { ExportApp } from '../../jobs/export-spec.ts';
import { filesSql } from '../export-query.ts';
import type { QueryEngine } from '../query-engine.ts';
import { ofApps } from './row-bounds.ts';
import type { RowGroup } from './row-groups.ts';

/** Rows that are counted by their app, at most: some tenths of a second. */
const mostCounted = 20_000_000;

const countSql = `SELECT parts.part, count(*) AS rows FROM ${filesSql} AS events
  JOIN (SELECT unnest($part) AS part, unnest($file) AS file, unnest($fromRow) AS from_row, unnest($beforeRow) AS before_row) AS parts
    ON events.file_index = parts.file AND events.file_row_number >= parts.from_row AND events.file_row_number < parts.before_row
  WHERE events.id_app IN (SELECT id_app FROM apps) GROUP BY parts.part`;

/**
 * Counts the rows of some apps in the row groups that have rows of others too: these are the only columns that are read.
 * Without it a bound of one account's rows would tell how many another has beside them. Groups that would be too much to
 * read stay as they are. Errors: `sql` where a file cannot be read.
 */
export async function countApps(
  engine: QueryEngine,
  groups: readonly RowGroup[],
  apps: readonly ExportApp[],
): Promise<RowGroup[]> {
  const isOne = ofApps(apps);
  let left = mostCounted;
  const mixed = [...groups.entries()].flatMap(([part, group]) => {
    const { least, most } = isOne(group);
    if (group.place === undefined || least === most || group.rows > left) return [];
    left -= group.rows;
    return [{ part, rows: group.rows, ...group.place }];
  });
  if (mixed.length === 0) return [...groups];
  const files = [...new Set(mixed.map(({ file }) => file))];
  const places = new Map(files.map((file, index) => [file, BigInt(index)]));
  const values = {
    part: mixed.map(({ part }) => BigInt(part)),
    file: mixed.map(({ file }) => places.get(file) ?? 0n),
    fromRow: mixed.map(({ fromRow }) => BigInt(fromRow)),
    beforeRow: mixed.map(({ fromRow, rows }) => BigInt(fromRow + rows)),
  };
  const found = await engine.rows({ sql: countSql, values }, files);
  const counts = new Map(found.map((row) => [Number(row['part']), Number(row['rows'])]));
  const counted = new Set(mixed.map(({ part }) => part));
  return groups.map((group, part) => (counted.has(part) ? { ...group, ofApps: counts.get(part) ?? 0 } : group));
}
