import type { Dataset } from '../../datasets/dataset.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import { halvesSql, type KeyHashes } from './key-set.ts';

/** The rows of the batch whose events have a key of their own, which their event ids are made of. */
export interface OwnKeys extends KeyHashes {
  readonly rowids: Uint32Array;
}

/** The kinds of a dataset whose events have a key of their own; empty: none has. */
export function ownKeyKinds({ kindSpecs }: Dataset): string[] {
  return [...kindSpecs].flatMap(([kind, { key }]) => (key.length > 0 ? [kind] : []));
}

const none = new Uint32Array();

/** Reads the keys of the batch that are of a dataset's kinds. */
export async function readOwnKeys(duckdb: Duckdb, dataset: Dataset): Promise<OwnKeys> {
  const kinds = ownKeyKinds(dataset);
  if (kinds.length === 0) return { lows: none, highs: none, rowids: none };
  const [lows = none, highs = none, rowids = none] = await duckdb.integers(
    `SELECT ${halvesSql('event_id')}, rowid::UINTEGER FROM batch WHERE NOT bad AND kind IN (${kinds.map(sqlText).join(', ')})`,
  );
  return { lows, highs, rowids };
}

/** Rows of a file that are read at once: their hashes are some megabytes, whatever the file holds. */
const rowsAtOnce = 4 * 122_880;

/** Reads the hashes of the event ids of all rows of a file, and hands them over in portions. */
export async function readFileKeys(duckdb: Duckdb, file: DataFile, take: (hashes: KeyHashes) => void): Promise<void> {
  const source = `read_parquet(${sqlText(file.absolutePath)}, hive_partitioning = false, file_row_number = true)`;
  const [counted] = await duckdb.rows(`SELECT count(*) AS n FROM ${source}`);
  const count = Number(counted?.['n']);
  for (let from = 0; from < count; from += rowsAtOnce) {
    const [lows = none, highs = none] = await duckdb.integers(
      `SELECT ${halvesSql('event_id')} FROM ${source}
       WHERE file_row_number >= ${from} AND file_row_number < ${from + rowsAtOnce} AND event_id IS NOT NULL`,
    );
    take({ lows, highs });
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
