import type { Dataset } from '../../datasets/dataset.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import type { KeyHash } from './key-set.ts';

/** A row of the batch whose event has a key of its own, which its event id is made of. */
export interface OwnKey extends KeyHash {
  readonly rowid: number;
}

/** The kinds of a dataset whose events have a key of their own; empty: none has. */
export function ownKeyKinds({ kindSpecs }: Dataset): string[] {
  return [...kindSpecs].flatMap(([kind, { key }]) => (key.length > 0 ? [kind] : []));
}

/** SQL of the halves of an event id's hash. */
const halvesSql = '(hash(event_id) & 4294967295)::UINTEGER AS low, (hash(event_id) >> 32)::UINTEGER AS high';

/** Reads the keys of the batch that are of a dataset's kinds. */
export async function readOwnKeys(duckdb: Duckdb, dataset: Dataset): Promise<OwnKey[]> {
  const kinds = ownKeyKinds(dataset);
  if (kinds.length === 0) return [];
  const rows = await duckdb.rows(
    `SELECT rowid::INTEGER AS r, ${halvesSql} FROM batch WHERE NOT bad AND kind IN (${kinds.map(sqlText).join(', ')})`,
  );
  return rows.map((row) => ({ rowid: Number(row['r']), low: Number(row['low']), high: Number(row['high']) }));
}

/** Rows of a file that are read at once: lists of them are a few megabytes, whatever the file holds. */
const rowsAtOnce = 122_880;

/** Reads the hashes of the event ids of all rows of a file, and hands each over. */
export async function readFileKeys(duckdb: Duckdb, file: DataFile, take: (hash: KeyHash) => void): Promise<void> {
  const source = `read_parquet(${sqlText(file.absolutePath)}, hive_partitioning = false, file_row_number = true)`;
  const [counted] = await duckdb.rows(`SELECT count(*) AS n FROM ${source}`);
  const count = Number(counted?.['n']);
  for (let from = 0; from < count; from += rowsAtOnce) {
    const [page] = await duckdb.rows(
      `SELECT list(low) AS lows, list(high) AS highs FROM (SELECT ${halvesSql} FROM ${source}
       WHERE file_row_number >= ${from} AND file_row_number < ${from + rowsAtOnce} AND event_id IS NOT NULL)`,
    );
    const lows = (page?.['lows'] ?? []) as readonly number[];
    const highs = (page?.['highs'] ?? []) as readonly number[];
    for (const [index, low] of lows.entries()) take({ low, high: highs[index] ?? 0 });
  }
}

/** Looks rows of the batch up in files, by event id and app: those that are there are repeats. */
export async function lookUpOwnKeys(
  duckdb: Duckdb,
  files: readonly DataFile[],
  rowids: readonly number[],
): Promise<void> {
  const asked = rowids.join(', ');
  await duckdb.run(
    `INSERT INTO stored_rows SELECT rowid FROM batch WHERE rowid IN (${asked}) AND (event_id, id_app) IN (
       SELECT (event_id, id_app) FROM read_parquet(${sqlList(files.map((file) => file.absolutePath))}, hive_partitioning = false)
       WHERE event_id IN (SELECT event_id FROM batch WHERE rowid IN (${asked})))`,
  );
}

/** Drops the rows that the table has, and those that are in the batch for the second time. */
export async function dropStoredRows(duckdb: Duckdb, dataset: Dataset): Promise<void> {
  const kinds = ownKeyKinds(dataset);
  if (kinds.length === 0) return;
  await duckdb.run(
    `INSERT INTO dropped SELECT r, 'repeat' FROM (
       SELECT rowid AS r, row_number() OVER (PARTITION BY event_id, id_app ORDER BY rowid) AS n
       FROM batch WHERE NOT bad AND kind IN (${kinds.map(sqlText).join(', ')}))
     WHERE (n > 1 OR r IN (SELECT r FROM stored_rows)) AND r NOT IN (SELECT r FROM dropped)`,
  );
}
