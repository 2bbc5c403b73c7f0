import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { datasets, type Dataset } from '../../src/datasets/dataset.ts';
import { toAdd, writeDataFile } from '../../src/lake/files/data-file.ts';
import { openDatasetTable } from '../../src/lake/lake.ts';
import type { TxnAction } from '../../src/lake/log/actions.ts';
import { nextAvailableAtMs } from '../../src/lake/log/lake-state.ts';
import type { Table } from '../../src/lake/log/table.ts';
import { youngFolder } from '../../src/lake/log/young-folder.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../src/lake/sql/literals.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';

/** A row of a dataset's table by column; times in Unix seconds. Absent columns are NULL. */
export interface TestRow {
  readonly event_id: string;
  readonly id_app: number;
  readonly event_time: number;
  readonly [column: string]: string | number | undefined;
}

function valueSql(value: string | number | undefined, type: string): string {
  if (value === undefined) return `NULL::${type}`;
  return type === 'TIMESTAMPTZ' ? `to_timestamp(${value})` : `${sqlText(String(value))}::${type}`;
}

function selectSql({ columns }: Dataset, row: TestRow, availableAtMs: number): string {
  const date = new Date(row.event_time * 1000).toISOString().slice(0, 10);
  const values: TestRow = { date, received_at: row.event_time, ...row, available_at: availableAtMs / 1000 };
  return `SELECT ${columns.map(({ name, type }) => `${valueSql(values[name], type)} AS ${name}`).join(', ')}`;
}

/** Returns a dataset by the name of its table. */
export function getDataset(name: string): Dataset {
  const dataset = datasets.get(name);
  if (dataset === undefined) throw new Error(`no dataset ${name}`);
  return dataset;
}

/** Returns SQL for rows with a value of 20 letters in every column of text. */
function wideRowsSql({ columns }: Dataset, rows: number, availableAtMs: number): string {
  const known: Readonly<Record<string, string>> = {
    event_id: `'row-' || i`,
    date: `DATE '2026-01-31'`,
    id_app: 'i % 20',
    event_time: `TIMESTAMPTZ '2026-01-31 00:00:00+00' + to_seconds(i % 86400)`,
    available_at: `make_timestamptz(${availableAtMs * 1000})`,
  };
  const value = ({ name, type }: Dataset['columns'][number]): string =>
    known[name] ?? (type === 'VARCHAR' ? `left(md5((i % 1000)::VARCHAR || '${name}'), 20)` : 'NULL');
  return `SELECT ${columns.map((column) => `(${value(column)})::${column.type} AS ${column.name}`).join(', ')} FROM range(${rows}) AS r(i)`;
}

/** Adds wide rows to a dataset's table as one young file by one commit. */
export function addWideRows(lakeDir: string, dataset: Dataset, rows: number): Promise<Table> {
  return addQuery(lakeDir, dataset, (availableAtMs) => wideRowsSql(dataset, rows, availableAtMs));
}

/**
 * Adds rows to a dataset's table as one young file by one commit, and creates a missing table. `txn`: the position in
 * the stream that the rows reach.
 */
export function addRows(lakeDir: string, dataset: Dataset, rows: readonly TestRow[], txn?: TxnAction): Promise<Table> {
  const toQuery = (availableAtMs: number): string =>
    rows.map((row) => selectSql(dataset, row, availableAtMs)).join(' UNION ALL ');
  return addQuery(lakeDir, dataset, toQuery, txn);
}

async function addQuery(
  lakeDir: string,
  dataset: Dataset,
  toQuery: (availableAtMs: number) => string,
  txn?: TxnAction,
): Promise<Table> {
  const clock = createClock(0);
  const options = { clock, crashPoint: noCrashPoint, retentionMs: 86_400_000 };
  const table = await openDatasetTable(lakeDir, dataset, options);
  const availableAtMs = nextAvailableAtMs(clock, table.lake());
  const name = path.posix.join(youngFolder, `${randomUUID()}.parquet`);
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    const written = await writeDataFile(duckdb, toQuery(availableAtMs), path.join(table.dir, name), 'young');
    await table.commit(() => ({
      cause: 'flush',
      actions: [{ add: toAdd(name, written, clock.nowMs(), true) }, ...(txn === undefined ? [] : [{ txn }])],
      totals: { streamed: written.numRecords, stored: written.numRecords },
      availableAtMs,
    }));
  } finally {
    duckdb.close();
  }
  return table;
}
