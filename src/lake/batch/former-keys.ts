import { events } from '../../datasets/dataset.ts';
import { isKeyedSql, keyWindowMs } from '../../datasets/event-id.ts';
import { lineColumns } from '../../datasets/event-line.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList } from '../sql/literals.ts';
import type { KeyTable } from './key-table.ts';

/**
 * Retries of batches that version 0.2 took in. It made the first part of an id for each event of a batch and the rest of
 * that event alone, so that by its ids a retry is another request under the same key. It is known by its values: the
 * lake has its first event under its key, the only one under that key at that time of receipt, and the others, received
 * at the same time, under others. So it is also with one event that was sent by itself and then as a batch.
 */

/** Of more requests that may be such retries none is looked for: a client that means them has them refused. */
const maxTimes = 1000;

const reusedSql = "SELECT r FROM dropped WHERE verdict = 'key_reused'";

/** Columns that a retry has the same values in. */
const valueColumns = lineColumns
  .map(({ name }) => name)
  .filter((name) => !['event_id', 'event_time', 'received_at'].includes(name))
  .filter((name) => events.columns.some((column) => column.name === name));

/** True where an event has the time that its client gave, or none was given. */
const sameTimeSql = `(stored.event_time = asked.event_time OR
  (epoch_ms(stored.event_time) = stored.ms // 1000 * 1000 AND epoch_ms(asked.event_time) = asked.ms // 1000 * 1000))`;

/**
 * Finds the batches with a reused key that may be such retries, by the verdict before and the known keys, into the table
 * `former`. Returns when the first requests of those keys were received, Unix milliseconds.
 */
export async function findFormerTimes(duckdb: Duckdb, { columnsSql }: KeyTable): Promise<number[]> {
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE former AS
     WITH reused AS (SELECT ${columnsSql}, epoch_ms(received_at) AS ms FROM batch WHERE rowid IN (${reusedSql})),
     requests AS (SELECT key, print, ms, count(DISTINCT place) AS events FROM reused GROUP BY key, print, ms HAVING max(place) = events - 1),
     known AS (SELECT key, ms FROM (FROM recent_keys UNION ALL FROM sliced_keys UNION ALL FROM batch_keys) WHERE key IN (SELECT key FROM requests)
       GROUP BY key, ms HAVING count(*) = 1 AND min(place) > 0)
     SELECT requests.*, known.ms AS first_ms FROM requests JOIN known ON known.key = requests.key AND requests.ms - known.ms <= ${keyWindowMs}`,
  );
  const rows = await duckdb.rows(`SELECT DISTINCT first_ms FROM former LIMIT ${maxTimes + 1}`);
  return rows.length > maxTimes ? [] : rows.map((row) => Number(row['first_ms']));
}

/** Looks the events of the table `former` up in files and in the batch: those of a request that are all there are repeats. */
export async function lookUpFormer(
  duckdb: Duckdb,
  { columnsSql }: KeyTable,
  files: readonly DataFile[],
  emptyFile: string,
): Promise<void> {
  const names = valueColumns.join(', ');
  const columns = `${columnsSql}, epoch_ms(received_at) AS ms, event_time, ${names}`;
  const source = `read_parquet(${sqlList([emptyFile, ...files.map((file) => file.absolutePath)])}, union_by_name = true, hive_partitioning = false)`;
  const same = valueColumns.map((name) => `stored.${name} IS NOT DISTINCT FROM asked.${name}`);
  await duckdb.run(
    `INSERT INTO stored_before
     WITH stored AS (SELECT ${columns} FROM (
         SELECT event_id, received_at, event_time, ${names} FROM ${source}
         UNION ALL SELECT event_id, received_at, event_time, ${names} FROM batch WHERE NOT bad AND rowid NOT IN (SELECT r FROM dropped))
       WHERE ${isKeyedSql('event_id')} AND received_at IN (SELECT make_timestamptz(first_ms * 1000) FROM former)),
     asked AS (SELECT rowid AS r, ${columns} FROM batch WHERE rowid IN (${reusedSql})),
     found AS (SELECT DISTINCT asked.r, asked.place, former.*
       FROM former JOIN asked ON asked.key = former.key AND asked.print = former.print AND asked.ms = former.ms
       JOIN stored ON stored.ms = former.first_ms AND (stored.key = asked.key) = (asked.place = 0) AND ${sameTimeSql} AND ${same.join(' AND ')})
     SELECT unnest(list(r)) FROM found GROUP BY key, print, ms, first_ms, events HAVING count(DISTINCT place) = events`,
  );
}
