import { randomUUID } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { events } from '../../src/datasets/dataset.ts';
import { partitionPath } from '../../src/datasets/partition.ts';
import type { Action } from '../../src/lake/log/actions.ts';
import type { Table } from '../../src/lake/log/table.ts';
import { sealedPath } from '../../src/lake/log/young-folder.ts';
import { toAdd, writeDataFile } from '../../src/lake/files/data-file.ts';
import { mergedGroups } from '../../src/lake/files/row-group-hashes.ts';
import { rowGroupBounds } from '../../src/lake/files/row-memory.ts';
import { openDuckdb, type Duckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlList, sqlText } from '../../src/lake/sql/literals.ts';
import { openBenchLake } from './bench-lake.ts';
import {
  cutFiles,
  dateOfYear,
  dayMs,
  daysOfYear,
  planDay,
  yearKinds,
  type AppDay,
  type Year,
  type YearKind,
} from './year-law.ts';

/** Size of a file of several apps, bytes. */
export const targetBytes = 128 * 1024 ** 2;
/** Bytes of a row in a file, as measured with 10,000,000 events. */
const bytesOfRow = 34;
const engine = { memoryMb: 1024, threads: 1 } as const;

const names = [
  'level_start',
  'level_complete',
  'level_fail',
  'shop_open',
  'purchase',
  'ad_shown',
  'quest_done',
  'invite',
];

/**
 * Returns SQL of the columns of row `i` of an app's day; `h` and `g` are hashes of it. A user of a registration is the
 * next one. Any other event is of one of the users so far, newer ones more often. One event in eight is of the user's
 * second device.
 */
function valuesOf({ seed, firstDayMs }: Year, kind: YearKind, day: number): Readonly<Record<string, string>> {
  const dayStartMs = firstDayMs + day * dayMs;
  const known = 'greatest(users, 1)';
  const user =
    kind === 'registration'
      ? 'users_before + i'
      : `least(${known} - 1, floor(sqrt((g % 1048576) / 1048576) * ${known}))::BIGINT`;
  const receivedMs = `(second * 1000 + 500 + (g % 19000)::BIGINT)`;
  return {
    event_id: `format('{:08x}-{:04x}-7{:03x}-8{:03x}-{:012x}', ${receivedMs} >> 16, ${receivedMs} & 65535, h & 4095, (h >> 12) & 4095, h >> 16)`,
    kind: sqlText(kind),
    date: `DATE '${dateOfYear({ firstDayMs }, day)}'`,
    id_app: 'id_app',
    event_time: 'make_timestamptz(second * 1000000)',
    received_at: `make_timestamptz(${receivedMs} * 1000)`,
    available_at: `make_timestamptz(${(dayStartMs + dayMs) * 1000})`,
    custom_user_id: `'user-' || ${user}`,
    lvid: `to_hex(hash(${seed}, id_app, ${user}${kind === 'registration' ? '' : ', h % 8 = 0'}))`,
    ...(kind === 'custom_event'
      ? {
          custom_event_name: `${sqlList(names)}[1 + (sqrt((h % 1024) / 1024) * ${names.length})::INT % ${names.length}]`,
        }
      : {}),
  };
}

/** Returns the query of a file: the rows of some apps, in the order of app and time. */
function rowsSql(year: Year, kind: YearKind, day: number, apps: readonly AppDay[]): string {
  const values = valuesOf(year, kind, day);
  const select = events.columns.map(({ name, type }) => `CAST(${values[name] ?? 'NULL'} AS ${type}) AS ${name}`);
  const list = apps.map(
    ({ idApp, rows, usersBefore }) => `(${idApp}, ${rows[kind]}, ${usersBefore}, ${rows.registration})`,
  );
  const second = `${(year.firstDayMs + day * dayMs) / 1000} + (2 * i + 1) * 86400 // (2 * n)`;
  const salt = `${year.seed}, ${day * yearKinds.length + yearKinds.indexOf(kind)}, id_app, i`;
  return `SELECT ${select.join(', ')} FROM (
    SELECT *, ${second} AS second, users_before + registered AS users, hash(${salt}) AS h, hash(${salt}, 1) AS g FROM (
      SELECT *, unnest(range(n)) AS i FROM (VALUES ${list.join(', ')}) AS apps(id_app, n, users_before, registered)))`;
}

/** Writes the files of a day as the seals of the day and their merge leave them; returns their adds. */
async function writeDay(table: Table, duckdb: Duckdb, year: Year, day: number) {
  const plan = planDay(year, day);
  const adds: Action[] = [];
  let rows = 0;
  for (const kind of yearKinds) {
    const files = cutFiles(plan, kind, targetBytes / bytesOfRow);
    const folder = partitionPath({ kind, date: dateOfYear(year, day) });
    const id = randomUUID();
    for (const [index, apps] of files.entries()) {
      // Several files of a day replace several others: their names say so.
      const relative = sealedPath(`${folder}/${id}${files.length === 1 ? '' : `-merged-${index}`}.parquet`);
      const file = path.join(table.dir, relative);
      await mkdir(path.dirname(file), { recursive: true });
      const bounds = { ...rowGroupBounds(engine.memoryMb, events.columns.length), ...mergedGroups };
      const written = await writeDataFile(duckdb, rowsSql(year, kind, day, apps), file, 'sealed', bounds);
      rows += written.numRecords;
      adds.push({ add: toAdd(relative, written, year.firstDayMs + (day + 1) * dayMs, true, true) });
    }
  }
  return { adds, rows };
}

/** Writes the lake of a year to `folder`/lake: the files of each day, and one commit per day. */
export async function writeYear(folder: string, year: Year): Promise<Table> {
  const table = await openBenchLake(folder);
  const lanes = Math.min(4, availableParallelism());
  // An engine with one thread keeps the order of the rows.
  const engines = await Promise.all(Array.from({ length: lanes }, () => openDuckdb(engine)));
  try {
    for (let from = 0; from < daysOfYear; from += lanes) {
      const days = engines
        .slice(0, daysOfYear - from)
        .map((duckdb, lane) => writeDay(table, duckdb, year, from + lane));
      for (const [lane, { adds, rows }] of (await Promise.all(days)).entries())
        if (rows > 0)
          await table.commit(() => ({
            cause: 'flush',
            actions: adds,
            totals: { streamed: rows, stored: rows },
            availableAtMs: year.firstDayMs + (from + lane + 1) * dayMs,
          }));
    }
    return table;
  } finally {
    for (const each of engines) each.close();
  }
}
