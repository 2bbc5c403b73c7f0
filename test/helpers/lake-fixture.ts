import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../src/lake/sql/literals.ts';
import { emptyFilePath } from '../../src/lake/log/snapshot.ts';
import { youngFolder } from '../../src/lake/log/young-folder.ts';
import { toSchemaString } from '../../src/lake/table-schema.ts';
import { eventColumns } from '../../src/datasets/event-fields.ts';
import type { Column, EventKind } from '../../src/datasets/field-schema.ts';

/** An event as a test writes it into a lake: column names, times as Unix seconds (a fraction is kept). */
export interface FixtureEvent {
  readonly event_id: string;
  /** Absent for rows of a table without kinds. */
  readonly kind?: EventKind;
  readonly id_app: number;
  readonly event_time: number;
  readonly available_at: number;
  readonly custom_user_id?: string;
  readonly custom_event_name?: string;
  readonly custom_event_params?: Readonly<Record<string, string>>;
  readonly [column: string]: unknown;
}

/** Returns the type as which a JSON value is read before its conversion to that of its column. */
function jsonType(type: string): string {
  if (type === 'TIMESTAMPTZ') return 'DOUBLE';
  return type === 'DATE' || type.startsWith('DECIMAL') ? 'VARCHAR' : type;
}

function selectColumn(name: string, type: string): string {
  if (type === 'TIMESTAMPTZ') return `make_timestamptz(CAST(round(${name} * 1000000) AS BIGINT)) AS ${name}`;
  return name === 'date'
    ? `CAST(timezone('UTC', make_timestamptz(CAST(event_time * 1000000 AS BIGINT))) AS DATE) AS date`
    : `CAST(${name} AS ${type}) AS ${name}`;
}

const iso = (seconds: number): string => new Date(Math.floor(seconds * 1000)).toISOString();

function statsOf(events: readonly FixtureEvent[]): string {
  const bounds = (pick: (event: FixtureEvent) => number): [number, number] => [
    Math.min(...events.map(pick)),
    Math.max(...events.map(pick)),
  ];
  const kinds = events.flatMap((event) => event.kind ?? []).toSorted();
  const [firstApp, lastApp] = bounds((event) => event.id_app);
  const [firstTime, lastTime] = bounds((event) => event.event_time);
  const [firstAvailable, lastAvailable] = bounds((event) => event.available_at);
  return JSON.stringify({
    numRecords: events.length,
    minValues: { id_app: firstApp, kind: kinds[0], event_time: iso(firstTime), available_at: iso(firstAvailable) },
    maxValues: { id_app: lastApp, kind: kinds.at(-1), event_time: iso(lastTime), available_at: iso(lastAvailable) },
  });
}

/**
 * Writes a lake as the compactor would: real Parquet files, one per batch, and a Delta log with one commit of all. Rows
 * keep the order of the batches and of their events. `columns`: those of the table; by default the events.
 */
export async function writeLake(
  tableDir: string,
  batches: readonly (readonly FixtureEvent[])[],
  columns: readonly Column[] = eventColumns,
): Promise<void> {
  mkdirSync(path.join(tableDir, youngFolder), { recursive: true });
  mkdirSync(path.join(tableDir, '_delta_log'), { recursive: true });
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  const types = `{${columns.map(({ name, type }) => `${name}: ${sqlText(jsonType(type))}`).join(', ')}}`;
  const select = columns.map(({ name, type }) => selectColumn(name, type)).join(', ');
  const write = async (events: readonly FixtureEvent[], file: string): Promise<void> => {
    const spool = `${file}.ndjson`;
    writeFileSync(spool, events.map((event) => `${JSON.stringify(event)}\n`).join(''));
    const source = `read_json(${sqlText(spool)}, format = 'newline_delimited', columns = ${types})`;
    await duckdb.run(`COPY (SELECT ${select} FROM ${source}) TO ${sqlText(file)} (FORMAT parquet, COMPRESSION zstd)`);
  };
  try {
    await write([], emptyFilePath(tableDir));
    const actions: unknown[] = [
      { protocol: { minReaderVersion: 1, minWriterVersion: 2 } },
      {
        metaData: {
          id: 'a4c9f9be-7d0c-4d1b-9f0a-0d8f7f7d3a10',
          format: { provider: 'parquet', options: {} },
          schemaString: toSchemaString(columns),
          partitionColumns: [],
          configuration: {},
        },
      },
    ];
    for (const [index, events] of batches.entries()) {
      const relative = `${youngFolder}/${String(index).padStart(6, '0')}.parquet`;
      const file = path.join(tableDir, relative);
      await write(events, file);
      actions.push({
        add: {
          path: relative,
          partitionValues: {},
          size: statSync(file).size,
          modificationTime: 0,
          dataChange: true,
          stats: statsOf(events),
        },
      });
    }
    writeFileSync(
      path.join(tableDir, '_delta_log', `${'0'.repeat(20)}.json`),
      actions.map((action) => `${JSON.stringify(action)}\n`).join(''),
    );
  } finally {
    duckdb.close();
  }
}
