import { sqlList, sqlText } from '../../src/lake/sql/literals.ts';
import { appCount, firstDay } from './export-lake.ts';

const daySeconds = 86_400;

/** The names or values of the parameters as an export writes a list; none of this lake's needs an escape. */
const listSql = (list: string): string => `'[''' || array_to_string(${list}, ''',''') || ''']'`;

/**
 * The first days of the benchmark's lake as a data engineer would export them: the plainest SQL whose cells are those of
 * the export of `selectors`, to hold it against. Nothing in it is made by the product.
 */
export function plainExportSql(files: readonly string[], beforeDay: number, target: string): string {
  const titles = Array.from({ length: appCount }, (_, index) => `(${index + 1}, 'Game ${index + 1}')`);
  return `COPY (
    SELECT event_id AS "eventId", epoch_us(event_time) // 1000000 AS "tsEvent", date AS "dtEvent", id_app AS "idApp",
      title AS "idAppTitle", custom_event_name AS "eventName",
      ${listSql('map_keys(custom_event_params)')} AS "params.name",
      ${listSql('map_values(custom_event_params)')} AS "params.value",
      custom_user_id AS "customUserId", lvid, ipv4,
      CASE connection_type WHEN 0 THEN 'unknown' WHEN 1 THEN 'mobile' WHEN 2 THEN 'wi-fi' END AS "idConnectionTypeTitle"
    FROM read_parquet(${sqlList(files)}) JOIN (VALUES ${titles.join(', ')}) AS apps (id, title) ON id = id_app
    WHERE kind = 'custom_event' AND event_time >= to_timestamp(${firstDay})
      AND event_time < to_timestamp(${firstDay + beforeDay * daySeconds})
  ) TO ${sqlText(target)} (FORMAT csv, HEADER true)`;
}

/**
 * SQL of one row that tells what cells some CSV files have, whatever the order of their rows: `rows`, and `cells`, which differ
 * as soon as any cell does.
 */
export function csvDigestSql(files: readonly string[]): string {
  const source = `read_csv(${sqlList(files)}, header = true, all_varchar = true, delim = ',', quote = '"', escape = '"')`;
  return `SELECT count(*) AS rows, CAST(sum(CAST(hash(line) AS HUGEINT)) AS VARCHAR) AS cells FROM ${source} AS line`;
}
