import { isKeyedSql } from '../../datasets/event-id.ts';
import { lineColumns } from '../../datasets/event-line.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { castSql, readLinesSql } from './line-sql.ts';
import { isPlainKindSql } from './plain-batch.ts';

/**
 * The lines under Idempotency-Keys of a batch that may go straight to the file: they alone are loaded and judged, and
 * those that are repeats are left out when all lines are written. To read them takes a sixth of what the batch costs.
 */

/** What a line under a key is judged by. */
const judgedColumns = new Set(['event_id', 'kind', 'id_app', 'received_at']);

/**
 * Loads the lines under keys of a spool into the table `batch`, in their order, as if they were all good: who writes the
 * lines checks them. Returns how many there are. Error: `sql`, also where a line is surely not plain.
 */
export async function loadKeyedLines(duckdb: Duckdb, spool: string): Promise<number> {
  const values = lineColumns
    .filter(({ name }) => judgedColumns.has(name))
    .map((column) => `${castSql(column)} AS ${column.name}`);
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE batch AS SELECT ${values.join(', ')}, false AS bad ${readLinesSql(spool)}
     WHERE CASE WHEN ${isPlainKindSql} THEN ${isKeyedSql('r.event_id')} ELSE error('a line is not plain') END`,
  );
  const [row] = await duckdb.rows('SELECT count(*) AS n FROM batch');
  return Number(row?.['n']);
}

/** Names the lines that were dropped in the table `left_out`, by what a line of a spool shows of itself. */
export async function nameLeftOut(duckdb: Duckdb): Promise<void> {
  await duckdb.run(
    'CREATE OR REPLACE TEMP TABLE left_out AS SELECT event_id, received_at FROM batch WHERE rowid IN (SELECT r FROM dropped)',
  );
}
