/**
 * The catalogue of parameters: what the custom events of each app have in their parameters.
 *
 * In: sealed files of the table of events. Out: for each of them its part, a function of its bytes alone, kept under
 * their hash in packs of several (packs.ts); the fold of all parts (fold.ts), of which the export area, the command and
 * views.sql are made.
 * Invariant: a part stands for the file of that hash and no other: a file that is sealed, erased from or mended has
 * another hash, and so another part; one whose file the table does not name is taken out of its pack.
 * Crash: what is missing is made at the next turn, what is left over is removed then: no step relies on another.
 */
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import { parameterTypes, typeColumn, typeOfSql } from './parameter-types.ts';
import { sketchSql } from './value-sketch.ts';

/** Bounds of a part: an app may send a million names of events, or of parameters. */
export const partBounds = {
  /** Names of events of one app, those with most events; the others are counted. */
  events: 500,
  /** Names of parameters of one event, those that stand in most of those looked at; the others are counted. */
  parameters: 100,
  /** Parameters of one event that are looked at. */
  ofEvent: 200,
  /** Examples of one parameter, and their longest, characters. */
  examples: 3,
  exampleLength: 60,
} as const;

/** Rows that an engine reads at once: a whole block is looked at, or none of it is decoded. */
const blockRows = 2048;
/** A file of so many blocks is looked at as a whole; of a larger one, one block in so many, and no more than so many. */
const wholeBlocks = 2;
const ofBlocks = 16;
const mostBlocks = 8;

/** A sealed file whose part is to be made. */
export interface PartSource {
  /** Hash of its bytes, hex. */
  readonly key: string;
  /** Absolute path. */
  readonly file: string;
  readonly rows: number;
}

/** Every so many-th block of a file is looked at for the parameters of its events. */
function stepOf({ rows }: PartSource): number {
  const blocks = Math.max(1, Math.ceil(rows / blockRows));
  return blocks <= wholeBlocks
    ? 1
    : Math.ceil(blocks / Math.min(mostBlocks, Math.max(1, Math.ceil(blocks / ofBlocks))));
}

/** Who sent an event, as far as it is told: an example is a value that two of them sent. */
const senderSql = 'hash(coalesce(custom_user_id, instance_id, lvid))';

/** Rows of custom events of one file. The empty file brings the columns that an older file does not have. */
const sourceSql = (columns: string, { key, file }: PartSource, emptyFile: string, where = ''): string =>
  `SELECT ${sqlText(key)} AS key, id_app, custom_event_name AS event, date, event_time, file_row_number AS place${columns}
   FROM read_parquet(${sqlList([emptyFile, file])}, union_by_name = true, hive_partitioning = false, file_row_number = true)
   WHERE kind = 'custom_event' AND custom_event_name IS NOT NULL${where}`;

const lookedColumns = `, custom_event_params AS params, ${senderSql} AS sender`;

/** The numbers of events by name; those beyond the bound in one row without a name. */
const eventsSql = (rows: string): string => `
  WITH named AS (
    SELECT key, id_app, event, date, count(*) AS events, min(event_time) AS first_seen, max(event_time) AS last_seen, min(place) AS place
    FROM (${rows}) GROUP BY ALL),
  ranked AS (SELECT *, row_number() OVER (PARTITION BY key, id_app ORDER BY events DESC, event) AS rank FROM named)
  SELECT key, id_app, event, date, events, first_seen, last_seen, place, 0 AS more FROM ranked WHERE rank <= ${partBounds.events}
  UNION ALL
  SELECT key, id_app, NULL, date, sum(events)::BIGINT, min(first_seen), max(last_seen), NULL, count(*)
  FROM ranked WHERE rank > ${partBounds.events} GROUP BY key, id_app, date`;

const typeCounts = parameterTypes.map(
  (type) => `coalesce(sum(n) FILTER (type = ${sqlText(type)}), 0)::BIGINT AS ${typeColumn(type)}`,
);

/** What the parameters of the events that are looked at have. */
const parametersSql = `
  WITH pairs AS (
    SELECT key, id_app, event, date, event_time, sender,
      unnest(map_keys(params)[1:${partBounds.ofEvent}]) AS parameter, unnest(map_values(params)[1:${partBounds.ofEvent}]) AS value
    FROM catalogue_looked SEMI JOIN catalogue_events USING (key, id_app, event, date)),
  grouped AS (
    SELECT key, id_app, event, date, parameter, value, count(*) AS n, min(event_time) AS first_seen, max(event_time) AS last_seen,
      coalesce(min(sender) <> max(sender), false) AND length(value) <= ${partBounds.exampleLength} AS shown
    FROM pairs GROUP BY key, id_app, event, date, parameter, value),
  typed AS (SELECT *, ${typeOfSql('value')} AS type FROM grouped),
  summed AS (
    SELECT key, id_app, event, date, parameter, sum(n)::BIGINT AS seen, ${typeCounts.join(', ')},
      ${sketchSql('value')}, min(first_seen) AS first_seen, max(last_seen) AS last_seen,
      coalesce(arg_max(value, n, ${partBounds.examples}) FILTER (shown), []) AS examples
    FROM typed GROUP BY key, id_app, event, date, parameter)
  SELECT *, row_number() OVER (PARTITION BY key, id_app, event, date ORDER BY seen DESC, parameter) AS rank FROM summed`;

const noTypes = parameterTypes.map((type) => `0::BIGINT AS ${typeColumn(type)}`).join(', ');
const types = parameterTypes.map(typeColumn).join(', ');
const onEvent = 'USING (key, id_app, event, date)';

/** The rows of parts. That of a file alone says that its part is made; those of events have no parameter. */
const rowsSql = (keys: readonly string[]): string => `
  SELECT unnest(${sqlList(keys)}) AS key, NULL::BIGINT AS id_app, NULL::VARCHAR AS event, NULL::VARCHAR AS parameter, NULL::DATE AS date,
    0::BIGINT AS events, 0::BIGINT AS seen, 0::BIGINT AS more, ${noTypes}, NULL::BLOB AS few, NULL::BLOB AS many,
    NULL::TIMESTAMPTZ AS first_seen, NULL::TIMESTAMPTZ AS last_seen, []::VARCHAR[] AS examples
  UNION ALL
  SELECT e.key, e.id_app, e.event, NULL, e.date, e.events, coalesce(l.looked, 0),
    CASE WHEN e.event IS NULL THEN e.more ELSE coalesce(p.more, 0) END, ${noTypes}, NULL, NULL, e.first_seen, e.last_seen, []
  FROM catalogue_events e
  LEFT JOIN (SELECT key, id_app, event, date, count(*) AS looked FROM catalogue_looked GROUP BY ALL) l ${onEvent}
  LEFT JOIN (SELECT key, id_app, event, date, count(*) AS more FROM catalogue_parameters WHERE rank > ${partBounds.parameters} GROUP BY ALL) p ${onEvent}
  UNION ALL
  SELECT key, id_app, event, parameter, date, 0, seen, 0, ${types}, few, many, first_seen, last_seen, examples
  FROM catalogue_parameters WHERE rank <= ${partBounds.parameters}`;

/** Looks at the first event of each name that no block had. */
async function lookAtOthers(duckdb: Duckdb, sources: readonly PartSource[], emptyFile: string): Promise<void> {
  const others = await duckdb.rows(
    `SELECT key, array_to_string(list(place), ', ') AS places FROM catalogue_events ANTI JOIN catalogue_looked ${onEvent} WHERE event IS NOT NULL GROUP BY key`,
  );
  for (const { key, places } of others) {
    const source = sources.find((one) => one.key === key);
    if (source !== undefined)
      await duckdb.run(
        `INSERT INTO catalogue_looked ${sourceSql(lookedColumns, source, emptyFile, ` AND file_row_number IN (${String(places)})`)}`,
      );
  }
}

/**
 * Writes the parts of some sealed files into one Parquet file, which the caller makes durable. Time: that of one scan of a
 * few columns, and of the parameters of a block in sixteen. Memory: bounded by the names and the events looked at; what
 * does not fit, the engine spills. Errors: those of the engine, also where a file is gone.
 */
export async function writeParts(
  duckdb: Duckdb,
  sources: readonly PartSource[],
  emptyFile: string,
  target: string,
): Promise<void> {
  const all = sources.map((source) => sourceSql('', source, emptyFile));
  const looked = sources.map((source) => {
    const step = stepOf(source);
    const where = step === 1 ? '' : ` AND file_row_number // ${blockRows} % ${step} = 0`;
    return sourceSql(lookedColumns, source, emptyFile, where);
  });
  try {
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE catalogue_events AS ${eventsSql(all.join('\nUNION ALL '))}`);
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE catalogue_looked AS ${looked.join('\nUNION ALL ')}`);
    await lookAtOthers(duckdb, sources, emptyFile);
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE catalogue_parameters AS ${parametersSql}`);
    await duckdb.run(
      `COPY (${rowsSql(sources.map(({ key }) => key))}) TO ${sqlText(target)} (FORMAT parquet, COMPRESSION zstd)`,
    );
  } finally {
    for (const name of ['events', 'looked', 'parameters'])
      await duckdb.run(`DROP TABLE IF EXISTS catalogue_${name}`).catch(() => undefined);
  }
}
