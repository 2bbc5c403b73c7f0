import { emptyFilePath } from './snapshot.ts';
import { sqlText } from './duckdb.ts';
import { logFolder } from './log-files.ts';
import { eventKinds } from '../model/event-kinds.ts';

/**
 * Writes the text of snapshot.sql: plain DuckDB SQL, no extension, for `.read` in the CLI or statement by statement through
 * any client. At the moment it runs it lists the live files from the newest checkpoint and the commits after it; the views
 * then read that snapshot. The text is the same for every state of the lake: only the root stands in it. DuckDB >= 1.2.
 */
export function snapshotSql(tableDir: string): string {
  const log = logFolder(tableDir);
  const views = eventKinds.map((kind) => `CREATE OR REPLACE VIEW ${kind} AS SELECT * FROM events WHERE kind = ${sqlText(kind)};`);
  return `-- The imported events as of now. Run it again for a newer snapshot.
-- Views: events (all), ${eventKinds.join(', ')}. Times are TIMESTAMPTZ.

SET VARIABLE tributary_checkpoint = (SELECT max(file) FROM glob(${sqlText(`${log}/*.checkpoint.parquet`)}));

SET VARIABLE tributary_commits = (
  SELECT list(file ORDER BY file) FROM glob(${sqlText(`${log}/*.json`)})
  WHERE parse_filename(file, true) >= parse_filename(replace(getvariable('tributary_checkpoint'), '.checkpoint.parquet', '.json'), true));

SET VARIABLE tributary_files = (
  WITH actions AS (
    SELECT '' AS commit, add.path AS path, true AS live
    FROM read_parquet(getvariable('tributary_checkpoint'), hive_partitioning = false) WHERE add.path IS NOT NULL
    UNION ALL
    SELECT filename, coalesce(add->>'path', remove->>'path'), add IS NOT NULL
    FROM read_json(getvariable('tributary_commits'), format = 'newline_delimited', filename = true,
      hive_partitioning = false, columns = {'add': 'JSON', 'remove': 'JSON'})
    WHERE add IS NOT NULL OR remove IS NOT NULL
  ), live AS (
    SELECT path FROM actions GROUP BY path HAVING arg_max(live, commit)
  )
  SELECT list_prepend(${sqlText(emptyFilePath(tableDir))}, coalesce(list(${sqlText(`${tableDir}/`)} || url_decode(path) ORDER BY path), []))
  FROM live);

CREATE OR REPLACE VIEW events AS
  SELECT * FROM read_parquet(getvariable('tributary_files'), union_by_name = true, hive_partitioning = false);
${views.join('\n')}
`;
}
