import type { Dataset } from '../../datasets/dataset.ts';
import type { SegmentKind } from '../../segments/segments.ts';
import { deviceColumnNames } from './conditions.ts';
import { filesSql } from './export-query.ts';

/**
 * What ids are compared by: 128 bits, of which no two ids have the same by chance. The engine holds the whole set in
 * memory, and of texts it would hold twice the bytes: two million of them did not fit into 256 MB.
 */
const keySql = (id: string): string => `md5_number(${id})`;

/** The relation of a segment's keys; its file binds as `$segment`. */
const segmentSql = `(SELECT ${keySql('id')} AS key FROM read_parquet($segment, hive_partitioning = false))`;

/**
 * SQL of the join by which only rows of a segment stay: each once, whatever the number of its ids that are in the
 * segment. It follows the relation `events` in FROM, and loses the order of the rows. `conditions` are those on `events`
 * that the query has beside it: what they leave out is not compared.
 *
 * One join on one set of ids: a comparison for each device column would hold the set in memory once for each.
 */
export function segmentJoin(kind: SegmentKind, { columns }: Dataset, conditions: readonly string[]): string {
  if (kind === 'custom')
    return `SEMI JOIN ${segmentSql} AS segment ON ${keySql('events.custom_user_id')} = segment.key`;
  const present = new Set(columns.map(({ name }) => name));
  const ids = deviceColumnNames.filter((name) => present.has(name)).map((name) => `events.${name}`);
  const given = `list_filter(CAST([${ids.join(', ')}] AS VARCHAR[]), lambda id: id IS NOT NULL)`;
  return `SEMI JOIN (
    SELECT DISTINCT named.file_index, named.file_row_number FROM (
      SELECT events.file_index, events.file_row_number, unnest(list_transform(${given}, lambda id: ${keySql('id')})) AS key
      FROM ${filesSql} AS events WHERE ${['true', ...conditions].join(' AND ')}
    ) AS named SEMI JOIN ${segmentSql} AS segment ON named.key = segment.key
  ) AS chosen ON events.file_index = chosen.file_index AND events.file_row_number = chosen.file_row_number`;
}
