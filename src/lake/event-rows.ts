import type { Dataset } from '../datasets/dataset.ts';
import { lineColumns } from '../datasets/event-line.ts';
import type { Column } from '../datasets/field-schema.ts';
import { pruneFiles, type FileFilter } from './files/prune.ts';
import type { Snapshot } from './log/snapshot.ts';
import { openDuckdb } from './sql/duckdb.ts';
import { sqlList, sqlName, sqlText } from './sql/literals.ts';

/** A row of a table, with the values that its line in the stream had. */
export interface EventRow {
  readonly eventId: string;
  /** By column: texts of numbers, Unix seconds (`received_at` milliseconds), a map as an object; null for none. */
  readonly values: Readonly<Record<string, unknown>>;
  /** Unix milliseconds. */
  readonly receivedAtMs: number;
  readonly availableAtMs: number;
}

function valueSql({ name, type }: Column): string {
  if (name === 'event_time') return `(epoch_ms(event_time) // 1000)::VARCHAR`;
  if (name === 'received_at') return `epoch_ms(received_at)::VARCHAR`;
  return type === 'MAP(VARCHAR, VARCHAR)' ? sqlName(name) : `${sqlName(name)}::VARCHAR`;
}

/** Finds rows by their ids, in the files that the filter leaves. */
export async function findEventRows(
  snapshot: Snapshot,
  { columns }: Dataset,
  eventIds: readonly string[],
  filter: FileFilter,
): Promise<EventRow[]> {
  const files = pruneFiles(snapshot.files, filter).map(({ absolutePath }) => absolutePath);
  if (files.length === 0 || eventIds.length === 0) return [];
  const has = new Set(columns.map(({ name }) => name));
  const members = lineColumns
    .filter(({ name }) => has.has(name))
    .map((column) => `${sqlText(column.name)}: ${valueSql(column)}`);
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    const rows = await duckdb.rows(
      `SELECT event_id, epoch_ms(received_at) AS received_ms, epoch_ms(available_at) AS available_ms, to_json({${members.join(', ')}})::VARCHAR AS line
       FROM read_parquet(${sqlList([snapshot.emptyFile, ...files])}, union_by_name = true, hive_partitioning = false)
       WHERE event_id IN (${eventIds.map(sqlText).join(', ')})`,
    );
    return rows.map((row) => ({
      eventId: String(row['event_id']),
      values: JSON.parse(String(row['line'])) as Readonly<Record<string, unknown>>,
      receivedAtMs: Number(row['received_ms']),
      availableAtMs: Number(row['available_ms']),
    }));
  } finally {
    duckdb.close();
  }
}
