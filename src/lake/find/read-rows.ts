import type { Dataset } from '../../datasets/dataset.ts';
import { lineColumns } from '../../datasets/event-line.ts';
import type { Column } from '../../datasets/field-schema.ts';
import type { DataFile, Snapshot } from '../log/snapshot.ts';
import type { Duckdb, SqlValue } from '../sql/duckdb.ts';
import { sqlList, sqlName, sqlText } from '../sql/literals.ts';

/** One version of a dataset's table. */
export interface DatasetTable {
  readonly dataset: Dataset;
  readonly snapshot: Snapshot;
}

/** A row that was found. Times are Unix milliseconds; of another engine's rows some may be missing. */
export interface FoundRow {
  readonly eventId: string;
  readonly kind?: string;
  readonly eventTimeMs: number | undefined;
  readonly receivedAtMs: number | undefined;
  readonly availableAtMs: number | undefined;
}

/** A row with the values that its line in the stream had. */
export interface WholeRow extends FoundRow {
  /** By column: texts of numbers, Unix seconds (`received_at` milliseconds), a map as an object; null for none. */
  readonly values: Readonly<Record<string, unknown>>;
}

/** Which rows of which files of a table: those for which the SQL holds, with the values of its parameters. */
export interface RowQuery {
  readonly files: readonly DataFile[];
  /** A condition, and what may follow it. */
  readonly where: string;
  readonly values?: readonly SqlValue[];
}

/** SQL of a row's kind: a table of rows of one kind does not say it. */
function kindSql({ columns, kinds }: Dataset): string {
  if (columns.some(({ name }) => name === 'kind')) return 'kind';
  return kinds.length === 1 && kinds[0] !== undefined ? sqlText(kinds[0]) : 'NULL';
}

const headSql = (dataset: Dataset): string =>
  `event_id, ${kindSql(dataset)} AS kind, epoch_ms(event_time) AS event_ms, epoch_ms(received_at) AS received_ms, epoch_ms(available_at) AS available_ms`;

function valueSql({ name, type }: Column): string {
  if (name === 'event_time') return `(epoch_ms(event_time) // 1000)::VARCHAR`;
  if (name === 'received_at') return `epoch_ms(received_at)::VARCHAR`;
  return type === 'MAP(VARCHAR, VARCHAR)' ? sqlName(name) : `${sqlName(name)}::VARCHAR`;
}

/** SQL of a row's values, as JSON. */
function lineSql({ columns }: Dataset): string {
  const has = new Set(columns.map(({ name }) => name));
  const members = lineColumns
    .filter(({ name }) => has.has(name))
    .map((column) => `${sqlText(column.name)}: ${valueSql(column)}`);
  return `to_json({${members.join(', ')}})::VARCHAR`;
}

const msOf = (value: unknown): number | undefined => (typeof value === 'bigint' ? Number(value) : undefined);

const toRow = (row: Readonly<Record<string, unknown>>): FoundRow => ({
  eventId: String(row['event_id']),
  ...(typeof row['kind'] === 'string' ? { kind: row['kind'] } : {}),
  eventTimeMs: msOf(row['event_ms']),
  receivedAtMs: msOf(row['received_ms']),
  availableAtMs: msOf(row['available_ms']),
});

const pathsOf = (files: readonly DataFile[]): string[] => files.map(({ absolutePath }) => absolutePath);

/** Reads rows. Errors: those of the engine, also where a file is gone since the snapshot. */
export async function readRows(duckdb: Duckdb, { dataset }: DatasetTable, query: RowQuery): Promise<FoundRow[]> {
  const { files, where, values = [] } = query;
  if (files.length === 0) return [];
  const rows = await duckdb.rows(
    `SELECT ${headSql(dataset)}
     FROM read_parquet(${sqlList(pathsOf(files))}, hive_partitioning = false)
     WHERE ${where}`,
    [...values],
  );
  return rows.map(toRow);
}

/** Reads rows with their values. Errors: as `readRows`. */
export async function readWholeRows(
  duckdb: Duckdb,
  { dataset, snapshot }: DatasetTable,
  { files, where, values = [] }: RowQuery,
): Promise<WholeRow[]> {
  if (files.length === 0) return [];
  // The empty file has every column: older files lack those that came later.
  const rows = await duckdb.rows(
    `SELECT ${headSql(dataset)}, ${lineSql(dataset)} AS line
     FROM read_parquet(${sqlList([snapshot.emptyFile, ...pathsOf(files)])}, union_by_name = true, hive_partitioning = false)
     WHERE ${where}`,
    [...values],
  );
  return rows.map((row) => ({
    ...toRow(row),
    values: JSON.parse(String(row['line'])) as Readonly<Record<string, unknown>>,
  }));
}
