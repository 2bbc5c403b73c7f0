import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import { partBounds } from './parts.ts';
import { parameterTypes, typeColumn } from './parameter-types.ts';
import { estimateSql, mergedSketchSql } from './value-sketch.ts';

/** Days of an event that the catalogue has the volume of, the newest. */
const mostDays = 400;

/** Characters of the keys of parts in a fold. */
export const foldedKeyLength = 16;

/** Of a row of `events`. */
const isNamed = `event IS NOT NULL AND rank <= ${partBounds.events}`;

const sums = parameterTypes.map((type) => `sum(${typeColumn(type)})::BIGINT AS ${typeColumn(type)}`).join(', ');
const types = parameterTypes.map(typeColumn).join(', ');
const noTypes = parameterTypes.map((type) => `0::BIGINT AS ${typeColumn(type)}`).join(', ');

/**
 * The whole of all parts, a row for each event of each app and for each of its parameters. An event has its events, those
 * that were looked at as `seen`, and its `days`; a parameter stands in `seen` of those. The row of an app without an event
 * has how many more names there are and their days, that of an event how many more parameters. A row without an app has
 * the beginning of the key of a part.
 */
const foldSql = (files: readonly string[]): string => `
  WITH parts AS (SELECT * FROM read_parquet(${sqlList(files)}) WHERE id_app IS NOT NULL),
  days AS (
    SELECT id_app, event, date, sum(events)::BIGINT AS events, sum(seen)::BIGINT AS seen, max(more) AS more,
      min(first_seen) AS first_seen, max(last_seen) AS last_seen
    FROM parts WHERE parameter IS NULL GROUP BY ALL),
  events AS (
    SELECT id_app, event, sum(events)::BIGINT AS events, sum(seen)::BIGINT AS seen, max(more)::BIGINT AS more,
      min(first_seen) AS first_seen, max(last_seen) AS last_seen,
      list({date: date, events: events} ORDER BY date DESC)[1:${mostDays}] AS days,
      row_number() OVER (PARTITION BY id_app ORDER BY event IS NULL, sum(events) DESC, event) AS rank
    FROM days GROUP BY id_app, event),
  merged AS (
    SELECT id_app, event, parameter, sum(seen)::BIGINT AS seen, ${sums}, ${mergedSketchSql}, min(first_seen) AS first_seen,
      max(last_seen) AS last_seen, coalesce(arg_max(examples, date) FILTER (len(examples) > 0), []) AS examples
    FROM parts WHERE parameter IS NOT NULL GROUP BY id_app, event, parameter),
  parameters AS (SELECT *, row_number() OVER (PARTITION BY id_app, event ORDER BY seen DESC, parameter) AS rank FROM merged),
  rests AS (
    SELECT id_app, list({date: date, events: events} ORDER BY date DESC)[1:${mostDays}] AS days
    FROM (SELECT id_app, date, sum(events)::BIGINT AS events FROM days ANTI JOIN (FROM events WHERE ${isNamed}) USING (id_app, event) GROUP BY ALL)
    GROUP BY id_app)
  SELECT id_app, event, NULL::VARCHAR AS parameter, events, seen, greatest(more, (
      SELECT count(*) FROM parameters p WHERE p.id_app = e.id_app AND p.event = e.event AND p.rank > ${partBounds.parameters})) AS more,
    ${noTypes}, NULL::BIGINT AS "values", first_seen, last_seen, []::VARCHAR[] AS examples, days
  FROM events e WHERE ${isNamed}
  UNION ALL
  SELECT id_app, NULL, NULL, sum(events)::BIGINT, 0, (sum(more) + count(*) FILTER (event IS NOT NULL))::BIGINT,
    ${noTypes}, NULL, min(first_seen), max(last_seen), [], any_value(rests.days)
  FROM events JOIN rests USING (id_app) WHERE NOT (${isNamed}) GROUP BY id_app
  UNION ALL
  SELECT id_app, event, parameter, 0, seen, 0, ${types}, ${estimateSql}, first_seen, last_seen, examples, []
  FROM parameters SEMI JOIN (FROM events WHERE ${isNamed}) USING (id_app, event)
  WHERE rank <= ${partBounds.parameters}
  UNION ALL
  SELECT NULL, left(key, ${foldedKeyLength}), NULL, 0, 0, 0, ${noTypes}, NULL, NULL, NULL, [], [] FROM read_parquet(${sqlList(files)}) WHERE id_app IS NULL`;

/** Writes the fold of packs, at least one, into a Parquet file. Memory: what does not fit is spilled. */
export async function writeFold(duckdb: Duckdb, files: readonly string[], target: string): Promise<void> {
  await duckdb.run(
    `COPY (${foldSql(files)} ORDER BY id_app, event, parameter NULLS FIRST) TO ${sqlText(target)} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 8192)`,
  );
}
