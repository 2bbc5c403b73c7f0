import path from 'node:path';
import { datasets, type Dataset } from '../../src/datasets/dataset.ts';
import { naturalKeyEventIds } from '../../src/datasets/event-id.ts';
import { tablePaths } from '../../src/lake/lake.ts';
import type { Totals } from '../../src/lake/log/lake-state.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import type { SqlRow } from '../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { eventLine, query } from './lake.ts';

/** The dataset of payments. */
export const payments: Dataset = (() => {
  const found = datasets.get('payments');
  if (found === undefined) throw new Error('the dataset of payments is missing');
  return found;
})();

/** Returns the line of a transaction as ingest publishes it; given members override the defaults. */
export function revenueLine(
  idTransaction: string,
  members: Readonly<Record<string, unknown>> = {},
): Record<string, unknown> {
  const idApp = Number(members['id_app'] ?? 1);
  return eventLine({
    event_id: naturalKeyEventIds('revenue', idApp, [{ idTransaction }])(0),
    kind: 'revenue',
    id_transaction: idTransaction,
    currency: 'USD',
    total: '9.99',
    ...members,
  });
}

/** Reads the totals of the log of payments; undefined while the table is missing. */
export async function readPaymentTotals(folder: string): Promise<Totals | undefined> {
  return (await readSnapshot(tablePaths(path.join(folder, 'lake'), payments).table)).lake?.totals;
}

/** Reads all committed rows of payments through the snapshot, sorted by transaction and app. */
export async function readPayments(folder: string, columns = 'id_transaction, id_app'): Promise<SqlRow[]> {
  const { version, emptyFile, files } = await readSnapshot(tablePaths(path.join(folder, 'lake'), payments).table);
  if (version < 0) return [];
  const list = sqlList([emptyFile, ...files.map((file) => file.absolutePath)]);
  return query(
    `SELECT ${columns} FROM read_parquet(${list}, union_by_name = true, hive_partitioning = false) ORDER BY id_transaction, id_app`,
  );
}
