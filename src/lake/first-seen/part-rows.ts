import { subjectKeySql, subjectSql } from '../../datasets/subject.ts';
import type { Subject } from '../../datasets/pipeline-file.ts';
import type { AppRange, RowsRead } from '../files/row-group-hashes.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';

/**
 * The rows of first-seen parts. Columns: subject (user or device), id_app, key (subject.ts) and first_seconds, the time
 * of the subject's first event, rounded down to s. They are in the order of subject and app. A row takes 19 bytes.
 */

/** A lookup for one app reads this many rows more than it needs. */
const groupRows = 61_440;
/** Rows that a merge groups at a time, except of one app: their hash table fits into the least memory. */
const mergedRows = 500_000;

const readSql = (paths: readonly string[]): string => `read_parquet(${sqlList(paths)}, hive_partitioning = false)`;

/** Writes a file. Keys do not compress. Version 2 of Parquet packs ordered numbers. */
async function copyTo(duckdb: Duckdb, file: string, query: string): Promise<void> {
  await duckdb.run(
    `COPY (${query}) TO ${sqlText(file)} (FORMAT parquet, PARQUET_VERSION v2, COMPRESSION uncompressed, ROW_GROUP_SIZE ${groupRows})`,
  );
}

/** Writes the rows of data files into a file. The first path is the empty file, which has every column. */
export async function writeRows(duckdb: Duckdb, paths: readonly string[], file: string): Promise<void> {
  const ofSubject = (subject: Subject): string =>
    `SELECT '${subject}' AS subject, id_app, ${subjectSql(subject)} AS id, min(event_time) AS first
     FROM read_parquet(${sqlList(paths)}, union_by_name = true, hive_partitioning = false) AS events
     WHERE id_app IS NOT NULL AND event_time IS NOT NULL AND ${subjectSql(subject)} IS NOT NULL GROUP BY ALL`;
  const query = `SELECT subject, id_app, ${subjectKeySql('id')} AS key, CAST(floor(epoch(first)) AS BIGINT) AS first_seconds
    FROM (${ofSubject('user')} UNION ALL ${ofSubject('device')}) ORDER BY subject, id_app`;
  await copyTo(duckdb, file, query);
}

/** Cuts the rows of parts, in their order, into those of one or more apps: conditions in SQL. */
async function cutRows(duckdb: Duckdb, paths: readonly string[]): Promise<string[]> {
  const apps = await duckdb.rows(
    `SELECT subject, id_app, count(*) AS rows FROM ${readSql(paths)} GROUP BY ALL ORDER BY ALL`,
  );
  const cuts: { readonly subject: string; readonly from: number; to: number; rows: number }[] = [];
  for (const app of apps) {
    const [subject, idApp, rows] = [String(app['subject']), Number(app['id_app']), Number(app['rows'])];
    const last = cuts.at(-1);
    if (last === undefined || last.subject !== subject || last.rows + rows > mergedRows)
      cuts.push({ subject, from: idApp, to: idApp, rows });
    else Object.assign(last, { to: idApp, rows: last.rows + rows });
  }
  return cuts.map(({ subject, from, to }) => `subject = '${subject}' AND id_app BETWEEN ${from} AND ${to}`);
}

/**
 * Merges the rows of parts into a file, app by app: only an app of more than `mergedRows` needs more memory, or spills.
 * `createPiece` returns the path of a temporary file; together they are as large as the result.
 */
export async function mergeRows(
  duckdb: Duckdb,
  paths: readonly string[],
  file: string,
  createPiece: () => string,
): Promise<void> {
  const pieces: string[] = [];
  const conditions = await cutRows(duckdb, paths);
  // Parts without rows make one without rows.
  for (const condition of conditions.length === 0 ? ['true'] : conditions) {
    const piece = createPiece();
    pieces.push(piece);
    const query = `SELECT subject, id_app, key, min(first_seconds) AS first_seconds FROM ${readSql(paths)} WHERE ${condition} GROUP BY ALL ORDER BY id_app`;
    await copyTo(duckdb, piece, query);
  }
  await copyTo(duckdb, file, `FROM ${readSql(pieces)}`);
}

const rangeOf = (idApps: readonly number[]): AppRange => [Math.min(...idApps), Math.max(...idApps)];

/** Returns what `earlierKeysSql` reads of a part. */
export function earlierRows(subject: Subject, idApps: readonly number[]): RowsRead {
  return { apps: [rangeOf(idApps)], subject };
}

/** Builds the relation of the keys that apps' subjects had before `$spanFrom`, in the parts bound as `$parts`. */
export function earlierKeysSql(subject: Subject, idApps: readonly number[]): string {
  return `SELECT id_app, key FROM read_parquet($parts, hive_partitioning = false)
    WHERE subject = '${subject}' AND id_app BETWEEN ${rangeOf(idApps).join(' AND ')}
      AND first_seconds < CAST($spanFrom AS BIGINT) // 1000000`;
}
