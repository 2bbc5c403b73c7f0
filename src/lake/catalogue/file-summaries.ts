/**
 * Builds the catalogue of parameters of custom events.
 *
 * In: sealed files of the events table. Out: a part per file, stored under the file's hash in packs (packs.ts); the
 * fold of all parts, for the export API, the command and views.sql.
 * Invariant: a part depends only on its file's bytes. Parts of files that the table does not name are removed.
 * Crash: the next run creates missing parts and removes leftovers.
 */
import { localFiles } from '../../runtime/store/open-store.ts';
import { createHash } from 'node:crypto';
import { pruneFiles } from '../files/prune.ts';
import { withEmptyFile, type DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import {
  estimateSql,
  mergedSketchSql,
  parameterTypes,
  sketchSql,
  typeColumn,
  typeOfSql,
  valueHashSql,
} from './parameter-types.ts';

/** Limits of a part. An app may send a million names. */
export const summaryLimits = {
  /** Events of an app, largest first. The others are counted. */
  events: 500,
  /** Parameters of an event, most frequent first. The others are counted. */
  parameters: 100,
  /** Events of a large file that are read because no sampled block had their name. */
  others: 1000,
  /** Examples of a parameter, and their length in characters. */
  examples: 3,
  exampleLength: 60,
} as const;

const blockRows = 2048;
/** Files up to this number of blocks are read entirely. Of others, one block in `ofBlocks` is. */
const wholeBlocks = 2;
const ofBlocks = 16;
const maxBlocks = 8;
const groupRows = 16_384;

/** A sealed file to summarize. `key` is that of its part. */
export interface SummarySource {
  readonly key: string;
  readonly file: DataFile;
  readonly rows: number;
}

/** Key of a part: the file's hash, or without one its path and size. */
export const partKey = ({ sha256, path, sizeBytes }: DataFile): string =>
  sha256 ?? createHash('sha256').update(`${path} ${sizeBytes}`).digest('hex');

/** Lists the sealed files that may have custom events, each content once, newest dates first. */
export function listSources(files: readonly DataFile[]): SummarySource[] {
  const sources = pruneFiles(files, { kinds: ['custom_event'] })
    .filter((file) => !file.young)
    .map((file) => ({ key: partKey(file), file, rows: file.numRecords ?? 0 }))
    .toSorted((a, b) => (a.file.path > b.file.path ? -1 : 1));
  return [...new Map(sources.map((source) => [source.key, source])).values()];
}

/** Interval of the blocks that are searched for parameters; 1: all. */
function stepOf({ rows }: SummarySource): number {
  const blocks = Math.max(1, Math.ceil(rows / blockRows));
  return blocks <= wholeBlocks ? 1 : Math.ceil(blocks / Math.min(maxBlocks, Math.max(1, Math.ceil(blocks / ofBlocks))));
}

interface LocalSource extends SummarySource {
  readonly path: string;
}

/** Files of one interval, numbered from `first` on. */
interface Scan {
  readonly step: number;
  readonly first: number;
  readonly sources: readonly LocalSource[];
}

/** Divides files into numbered scans, with those that are read entirely first. */
function toScans(sources: readonly LocalSource[]): Scan[] {
  const scans: Scan[] = [];
  const steps = [...new Set(sources.map(stepOf))].toSorted((a, b) => a - b);
  let first = 0;
  for (const step of steps) {
    const files = sources.filter((source) => stepOf(source) === step);
    scans.push({ step, first, sources: files });
    first += files.length;
  }
  return scans;
}

const firstOf = (columns: readonly string[]): string =>
  `coalesce(${columns.map((column) => `nullif(${column}, '')`).join(', ')})`;
const userSql = firstOf(['custom_user_id', 'custom_platform_user_id', 'CAST(sezam_user_id AS VARCHAR)']);
const deviceSql = firstOf(['instance_id', 'lvid', 'gaid', 'android_id', 'app_set_id', 'idfa', 'ios_vendor_id']);

/** Hash of the sender: an example needs two users, or two devices without a user. */
const lookedColumns = `, custom_event_params AS params, CASE WHEN ${userSql} IS NOT NULL THEN hash(${userSql}) END AS from_user,
  CASE WHEN ${userSql} IS NULL AND ${deviceSql} IS NOT NULL THEN hash(${deviceSql}) END AS from_device`;

/** Custom events of a scan. The empty file brings columns that older files lack. */
const scanSql = ({ sources, first }: Scan, emptyFile: string, columns: string, where = ''): string =>
  `SELECT file_index::INTEGER + ${first - 1} AS file, id_app, custom_event_name AS event, date, event_time${columns}
   FROM read_parquet(${sqlList([emptyFile, ...sources.map((source) => source.path)])}, union_by_name = true, hive_partitioning = false)
   WHERE kind = 'custom_event' AND custom_event_name IS NOT NULL${where}`;

const lookedSql = (scan: Scan, emptyFile: string): string =>
  scanSql(
    scan,
    emptyFile,
    lookedColumns,
    scan.step === 1 ? '' : ` AND file_row_number // ${blockRows} % ${scan.step} = 0`,
  );

const countColumns =
  'file, id_app, event, date, count(*) AS events, min(event_time) AS first_seen, max(event_time) AS last_seen';

/** Numbers of events by name, with ids. Names beyond the limit share a row without a name. */
function eventsSql(scans: readonly Scan[], emptyFile: string): string {
  const counts = scans.map((scan) =>
    scan.step === 1
      ? `SELECT ${countColumns}, NULL::BIGINT AS place FROM catalogue_looked WHERE file < ${scan.sources.length} GROUP BY ALL`
      : `SELECT ${countColumns}, min(place) AS place FROM (${scanSql(scan, emptyFile, ', file_row_number AS place')}) GROUP BY ALL`,
  );
  return `
  WITH named AS (${counts.join('\nUNION ALL ')}),
  ranked AS (SELECT *, row_number() OVER (PARTITION BY file, id_app ORDER BY events DESC, event) AS rank FROM named),
  bounded AS (
    SELECT file, id_app, event, date, events, first_seen, last_seen, place, 0 AS more FROM ranked WHERE rank <= ${summaryLimits.events}
    UNION ALL
    SELECT file, id_app, NULL, date, sum(events)::BIGINT, min(first_seen), max(last_seen), NULL, count(*)
    FROM ranked WHERE rank > ${summaryLimits.events} GROUP BY file, id_app, date)
  SELECT *, (row_number() OVER ())::INTEGER AS id FROM bounded`;
}

const onEvent = 'USING (file, id_app, event, date)';

const valuesSql = `
  SELECT id, parameter, coalesce(value, '') AS value, count(*) AS n, min(event_time) AS first_seen, max(event_time) AS last_seen,
    coalesce(min(from_user) <> max(from_user), false) OR coalesce(min(from_device) <> max(from_device), false) AS shared
  FROM (SELECT id, event_time, from_user, from_device, unnest(map_keys(params)) AS parameter, unnest(map_values(params)) AS value
    FROM catalogue_looked JOIN catalogue_events ${onEvent}) GROUP BY ALL`;

const typeCounts = parameterTypes.map(
  (type) => `coalesce(sum(n) FILTER (type = ${sqlText(type)}), 0)::BIGINT AS ${typeColumn(type)}`,
);

/** Summaries of the parameters. A value may repeat: its text is analyzed once. */
const parametersSql = `
  WITH texts AS (
    SELECT value, ${typeOfSql('value')} AS type, ${valueHashSql('value')} AS hash, length(value) <= ${summaryLimits.exampleLength} AS short
    FROM (SELECT DISTINCT value FROM catalogue_values)),
  summed AS (
    SELECT id, parameter, sum(n)::BIGINT AS seen, ${typeCounts.join(', ')},
      ${sketchSql('hash')}, min(first_seen) AS first_seen, max(last_seen) AS last_seen,
      coalesce(arg_max(value, n, ${summaryLimits.examples}) FILTER (shared AND short), []) AS examples
    FROM catalogue_values JOIN texts USING (value) GROUP BY id, parameter)
  SELECT *, row_number() OVER (PARTITION BY id ORDER BY seen DESC, parameter) AS rank FROM summed`;

const noTypes = parameterTypes.map((type) => `0::BIGINT AS ${typeColumn(type)}`).join(', ');
const types = parameterTypes.map(typeColumn).join(', ');

/** Rows of parts. `keys` are indexed by file number. A row with a file alone marks its part as complete. */
const rowsSql = (keys: string): string => `
  SELECT unnest(${keys}) AS key, NULL::BIGINT AS id_app, NULL::VARCHAR AS event, NULL::VARCHAR AS parameter, NULL::DATE AS date,
    0::BIGINT AS events, 0::BIGINT AS seen, 0::BIGINT AS more, ${noTypes}, NULL::BLOB AS few, NULL::BLOB AS many,
    NULL::TIMESTAMPTZ AS first_seen, NULL::TIMESTAMPTZ AS last_seen, []::VARCHAR[] AS examples
  UNION ALL
  SELECT ${keys}[e.file + 1], e.id_app, e.event, NULL, e.date, e.events, coalesce(l.looked, 0),
    CASE WHEN e.event IS NULL THEN e.more ELSE coalesce(p.more, 0) END, ${noTypes}, NULL, NULL, e.first_seen, e.last_seen, []
  FROM catalogue_events e
  LEFT JOIN (SELECT file, id_app, event, date, count(*) AS looked FROM catalogue_looked GROUP BY ALL) l ${onEvent}
  LEFT JOIN (SELECT id, count(*) AS more FROM catalogue_parameters WHERE rank > ${summaryLimits.parameters} GROUP BY id) p USING (id)
  UNION ALL
  SELECT ${keys}[e.file + 1], e.id_app, e.event, p.parameter, e.date, 0, p.seen, 0, ${types}, p.few, p.many, p.first_seen, p.last_seen, p.examples
  FROM catalogue_parameters p JOIN catalogue_events e USING (id) WHERE p.rank <= ${summaryLimits.parameters}`;

/** Reads the first event of each name that no sampled block had. */
async function lookAtOthers(duckdb: Duckdb, scans: readonly Scan[], emptyFile: string): Promise<void> {
  const others = await duckdb.rows(
    `SELECT file, array_to_string(list(place ORDER BY events DESC, place)[1:${summaryLimits.others}], ', ') AS places
     FROM catalogue_events ANTI JOIN catalogue_looked ${onEvent} WHERE place IS NOT NULL GROUP BY file`,
  );
  for (const { file, places } of others) {
    const number = Number(file);
    const scan = scans.find(({ first, sources }) => number >= first && number < first + sources.length);
    const source = scan?.sources[number - scan.first];
    if (scan === undefined || source === undefined) continue;
    const alone = { ...scan, first: number, sources: [source] };
    await duckdb.run(
      `INSERT INTO catalogue_looked ${scanSql(alone, emptyFile, lookedColumns, ` AND file_row_number IN (${String(places)})`)}`,
    );
  }
}

/** Writes the parts of sealed files to a Parquet file, sampling large ones. Spills. Errors: the engine's. */
export async function writeFileSummaries(
  duckdb: Duckdb,
  sources: readonly SummarySource[],
  emptyFile: string,
  target: string,
): Promise<void> {
  const files = sources.map(({ file }) => file);
  await localFiles.use(withEmptyFile({ emptyFile }, files), async ([emptyPath = '', ...paths]) => {
    const scans = toScans(sources.map((source, index) => ({ ...source, path: paths[index] ?? '' })));
    await writeScans(duckdb, scans, emptyPath, target);
  });
}

async function writeScans(duckdb: Duckdb, scans: readonly Scan[], emptyFile: string, target: string): Promise<void> {
  const keys = sqlList(scans.flatMap((scan) => scan.sources.map(({ key }) => key)));
  const make = (name: string, query: string): Promise<void> =>
    duckdb.run(`CREATE OR REPLACE TEMP TABLE catalogue_${name} AS ${query}`);
  try {
    await make('looked', scans.map((scan) => lookedSql(scan, emptyFile)).join('\nUNION ALL '));
    await make('events', eventsSql(scans, emptyFile));
    if (scans.some(({ step }) => step > 1)) await lookAtOthers(duckdb, scans, emptyFile);
    await make('values', valuesSql);
    await make('parameters', parametersSql);
    await duckdb.run(
      `COPY (${rowsSql(keys)}) TO ${sqlText(target)} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE ${groupRows})`,
    );
  } finally {
    for (const name of ['looked', 'events', 'values', 'parameters'])
      await duckdb.run(`DROP TABLE IF EXISTS catalogue_${name}`).catch(() => undefined);
  }
}

const maxDays = 400;

/** Characters of the keys in a fold. */
export const foldedKeyLength = 16;

const isNamed = `event IS NOT NULL AND rank <= ${summaryLimits.events}`;

const sums = parameterTypes.map((type) => `sum(${typeColumn(type)})::BIGINT AS ${typeColumn(type)}`).join(', ');

/**
 * Merges all parts: a row per event of each app and per parameter. `seen`: events searched for parameters, or those
 * with the parameter. Rows without an event or a parameter count those beyond the limit. Rows without an app have a
 * prefix of a part's key.
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
      list({date: date, events: events} ORDER BY date DESC)[1:${maxDays}] AS days,
      row_number() OVER (PARTITION BY id_app ORDER BY event IS NULL, sum(events) DESC, event) AS rank
    FROM days GROUP BY id_app, event),
  merged AS (
    SELECT id_app, event, parameter, sum(seen)::BIGINT AS seen, ${sums}, ${mergedSketchSql}, min(first_seen) AS first_seen,
      max(last_seen) AS last_seen, coalesce(arg_max(examples, date) FILTER (len(examples) > 0), []) AS examples
    FROM parts WHERE parameter IS NOT NULL GROUP BY id_app, event, parameter),
  parameters AS (SELECT *, row_number() OVER (PARTITION BY id_app, event ORDER BY seen DESC, parameter) AS rank FROM merged),
  rests AS (
    SELECT id_app, list({date: date, events: events} ORDER BY date DESC)[1:${maxDays}] AS days
    FROM (SELECT id_app, date, sum(events)::BIGINT AS events FROM days ANTI JOIN (FROM events WHERE ${isNamed}) USING (id_app, event) GROUP BY ALL)
    GROUP BY id_app)
  SELECT id_app, event, NULL::VARCHAR AS parameter, events, seen, greatest(more, (
      SELECT count(*) FROM parameters p WHERE p.id_app = e.id_app AND p.event = e.event AND p.rank > ${summaryLimits.parameters})) AS more,
    ${noTypes}, NULL::BIGINT AS "values", first_seen, last_seen, []::VARCHAR[] AS examples, days
  FROM events e WHERE ${isNamed}
  UNION ALL
  SELECT id_app, NULL, NULL, sum(events)::BIGINT, 0, (sum(more) + count(*) FILTER (event IS NOT NULL))::BIGINT,
    ${noTypes}, NULL, min(first_seen), max(last_seen), [], any_value(rests.days)
  FROM events JOIN rests USING (id_app) WHERE NOT (${isNamed}) GROUP BY id_app
  UNION ALL
  SELECT id_app, event, parameter, 0, seen, 0, ${types}, ${estimateSql}, first_seen, last_seen, examples, []
  FROM parameters SEMI JOIN (FROM events WHERE ${isNamed}) USING (id_app, event)
  WHERE rank <= ${summaryLimits.parameters}
  UNION ALL
  SELECT NULL, left(key, ${foldedKeyLength}), NULL, 0, 0, 0, ${noTypes}, NULL, NULL, NULL, [], [] FROM read_parquet(${sqlList(files)}) WHERE id_app IS NULL`;

/** Writes the fold of at least one pack to a Parquet file. Spills. */
export async function writeMergedCatalogue(duckdb: Duckdb, files: readonly string[], target: string): Promise<void> {
  await duckdb.run(
    `COPY (${foldSql(files)} ORDER BY id_app, event, parameter NULLS FIRST) TO ${sqlText(target)} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 8192)`,
  );
}
