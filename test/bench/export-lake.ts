import path from 'node:path';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { eventColumns } from '../../src/datasets/event-fields.ts';
import type { Table } from '../../src/lake/log/table.ts';
import { addDataFiles, type FilePlan } from './bench-lake.ts';

/** First day of the lake, Unix seconds. */
export const firstDay = Date.UTC(2024, 0, 1) / 1000;
/** Number of apps that the rows are spread over; their ids begin at 1. */
export const appCount = 4;

const daySeconds = 86_400;
const names = [
  'session_start',
  'level_start',
  'level_complete',
  'level_fail',
  'shop_open',
  'purchase',
  'session_end',
  'tutorial_step',
];
const userAgents = [
  'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36',
  'Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0',
];

/** Returns the columns of a generated game event as SQL of `i`, its number in the day, and `h`, a hash of `i`. */
function valuesOf(day: number, rowsOfDay: number): Readonly<Record<string, string>> {
  const perApp = Math.ceil(rowsOfDay / appCount);
  const time = (offsetSeconds: number): string =>
    `make_timestamptz(${(firstDay + day * daySeconds + offsetSeconds) * 1_000_000} + (i % ${perApp}) * ${Math.floor((daySeconds * 1_000_000) / perApp)})`;
  return {
    event_id: 'uuid()::VARCHAR',
    kind: "'custom_event'",
    date: `DATE '2024-01-01' + ${day}`,
    id_app: `1 + i // ${perApp}`,
    event_time: time(0),
    received_at: time(1),
    available_at: `make_timestamptz(${(firstDay + (day + 1) * daySeconds) * 1_000_000})`,
    custom_user_id: `'player-' || (h % 5000)`,
    lvid: `md5((h % 5000)::VARCHAR)`,
    ipv4: `'203.0.113.' || (h % 254)`,
    user_agent: `${sqlList(userAgents)}[1 + (h % ${userAgents.length})::INT]`,
    connection_type: '(h % 3)::SMALLINT',
    ad_blocker: '(h % 2)::SMALLINT',
    id_gender: 'CASE WHEN h % 3 > 0 THEN (h % 3)::SMALLINT END',
    age: 'CASE WHEN h % 5 > 0 THEN (13 + h % 60)::SMALLINT END',
    custom_event_name: `${sqlList(names)}[1 + (h % ${names.length})::INT]`,
    custom_event_params: `MAP {'session': to_hex(h), 'level': (h % 40)::VARCHAR, 'seconds': (h % 900)::VARCHAR, 'coins': (i % 7919)::VARCHAR}`,
  };
}

/**
 * Adds days of generated events in one commit, with the layout of seals: one file per day in its Hive folder, sorted by
 * app and time.
 */
export async function addDays(table: Table, fromDay: number, beforeDay: number, rowsOfDay: number): Promise<void> {
  const plan: FilePlan = Array.from({ length: beforeDay - fromDay }, (_, index) => {
    const day = fromDay + index;
    const values = valuesOf(day, rowsOfDay);
    const select = eventColumns.map(({ name, type }) => `CAST(${values[name] ?? 'NULL'} AS ${type}) AS ${name}`);
    const date = new Date((firstDay + day * daySeconds) * 1000).toISOString().slice(0, 10);
    return [
      path.join('kind=custom_event', `date=${date}`, 'day.parquet'),
      `SELECT ${select.join(', ')} FROM (SELECT range AS i, hash(range + ${day * rowsOfDay}) AS h FROM range(${rowsOfDay}))`,
    ];
  });
  const duckdb = await openDuckdb({ memoryMb: 2048, threads: 2 });
  try {
    await addDataFiles(table, duckdb, plan);
  } finally {
    duckdb.close();
  }
}
