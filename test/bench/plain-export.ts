import { sqlList, sqlText } from '../../src/lake/sql/literals.ts';
import { appCount, firstDay } from './export-lake.ts';

const daySeconds = 86_400;

/**
 * Returns SQL that writes names or values of parameters as an export writes a list; none of this lake's needs an
 * escape.
 */
const listSql = (list: string): string => `'[''' || array_to_string(${list}, ''',''') || ''']'`;

/**
 * Returns plain SQL for the first days of the lake, as a data engineer would write it, with the same cells as the
 * export of `selectors`. It uses no code of the product.
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
 * Returns SQL for one row that identifies the cells of CSV files in any order of rows: `rows`, and `cells`, which
 * changes with any cell.
 */
export function csvDigestSql(files: readonly string[]): string {
  const source = `read_csv(${sqlList(files)}, header = true, all_varchar = true, delim = ',', quote = '"', escape = '"')`;
  return `SELECT count(*) AS rows, CAST(sum(CAST(hash(line) AS HUGEINT)) AS VARCHAR) AS cells FROM ${source} AS line`;
}
