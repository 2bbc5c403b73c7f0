import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { toAdd, writeDataFile } from '../../src/lake/files/data-file.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { ensureLake, lakePaths } from '../../src/lake/lake.ts';
import type { DataFile } from '../../src/lake/log/snapshot.ts';
import { openTable, type Table } from '../../src/lake/log/table.ts';
import { eventColumns } from '../../src/datasets/event-fields.ts';
import type { Column } from '../../src/datasets/field-schema.ts';
import { ensureFolder } from '../../src/runtime/files/durable-file.ts';
import { createClock, type Clock } from '../../src/runtime/clock.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';

/** The values of row `i` of `rows`; the columns that are not named are NULL. 2.7 million rows make about 128 MB. */
export const sealedValues = (rows: number, people: number): Readonly<Record<string, string>> => {
  const time = `TIMESTAMPTZ '2026-01-31 00:00:00+00' + to_milliseconds(i * 86000000 // ${rows})`;
  return {
    event_id: `format('{:08x}-0000-7000-8000-{:012x}', i, i * 7919)`,
    kind: `'custom_event'`,
    date: `DATE '2026-01-31'`,
    id_app: `(i * 20 // ${rows}) + 1`,
    event_time: time,
    received_at: time,
    available_at: time,
    custom_user_id: `'user-' || (hash(i) % ${people})`,
    ipv4: `'10.1.' || (hash(i * 3) % 250) || '.' || (hash(i * 5) % 250)`,
    age: 'hash(i * 7) % 80',
    lvid: `md5((hash(i) % ${people})::VARCHAR)`,
    user_agent: `'Mozilla/5.0 (X11; Linux x86_64) Chrome/12' || (hash(i * 11) % 9)`,
    custom_event_name: `'level_' || (hash(i * 17) % 40)`,
    custom_event_params: `MAP {'level': (hash(i * 19) % 100)::VARCHAR, 'score': (hash(i * 23) % 100000)::VARCHAR}`,
  };
};

/** A file of rows that DuckDB makes: row `i` has `values` of it in these columns, as SQL, and NULL in the others. */
export interface MadeFile {
  /** Relative to the table's folder. */
  readonly path: string;
  readonly rows: number;
  readonly values: Readonly<Record<string, string>>;
  /** The columns of the file; those of the events by default. */
  readonly columns?: readonly Column[];
  /** The `available_at` of its rows, where readers of changes are to see them as new. */
  readonly availableAtMs?: number;
  readonly orderBy?: string;
  readonly rowGroupRows?: number;
}

/** Adds such a file to a table, as sealing commits one. */
export async function addMadeFile(table: Table, clock: Clock, made: MadeFile): Promise<void> {
  const file = path.join(table.dir, made.path);
  const columns = (made.columns ?? eventColumns)
    .map(({ name, type }) => `(${made.values[name] ?? 'NULL'})::${type} AS ${name}`)
    .join(', ');
  const order = made.orderBy === undefined ? '' : ` ORDER BY ${made.orderBy}`;
  const groups = made.rowGroupRows === undefined ? undefined : { rows: made.rowGroupRows };
  const duckdb = await openDuckdb({ memoryMb: 1024, threads: 2 });
  try {
    await ensureFolder(path.dirname(file));
    const select = `SELECT * FROM (SELECT ${columns} FROM range(${made.rows}) AS r(i))${order}`;
    const written = await writeDataFile(duckdb, select, file, 'sealed', groups);
    await table.commit(() => ({
      cause: 'seal',
      actions: [{ add: toAdd(made.path, written, clock.nowMs(), true) }],
      totals: { streamed: made.rows, stored: made.rows },
      ...(made.availableAtMs === undefined ? {} : { availableAtMs: made.availableAtMs }),
    }));
  } finally {
    duckdb.close();
  }
}

/**
 * Adds a sealed file to a lake, made by DuckDB itself: a million rows in some seconds. Its people are `user-0` to
 * `user-<people - 1>`.
 */
export async function addSealedFile(lakeDir: string, rows: number, people: number): Promise<DataFile | undefined> {
  const clock = createClock(0);
  await ensureLake(lakeDir, { clock, retentionMs: 86_400_000 });
  const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
  const relative = `kind=custom_event/date=2026-01-31/${randomUUID()}.parquet`;
  await addMadeFile(table, clock, { path: relative, rows, values: sealedValues(rows, people) });
  return table.snapshot().files.find((file) => file.path === relative);
}
