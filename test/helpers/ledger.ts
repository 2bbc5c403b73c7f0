import { copyFileSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { DuckDBInstance, type DuckDBConnection } from '@duckdb/node-api';
import { readSnapshot, type DataFile } from '../../src/lake/log/snapshot.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { localViewsSql } from '../../src/lake/sql/snapshot-sql.ts';
import { localFiles, openStore } from '../../src/runtime/store/open-store.ts';
import { testFolder } from './folder.ts';

/**
 * A client's record of the events it sent and their responses, and its comparison with the lake.
 *
 * Each event has an id that only this ledger assigns. The id is in customEventName and in customEventParams, or in
 * idTransaction and the total, so that a stored row shows whether it is complete. An event is sent once. Its row must
 * exist if it was acknowledged, must not exist if it was rejected, and may exist if the outcome is unknown.
 */
export type Outcome = 'acknowledged' | 'refused' | 'unknown';

/** Name of the parameter that repeats the event's id. */
export const idParam = 'ledger_id';

export interface Ledger {
  /** Prefix of every id; distinguishes this ledger's events from others in the same lake. */
  readonly name: string;
  /** Assigns the next id. The event counts as unknown until `record` changes it. */
  nextId(): string;
  /** Records the outcome of events. */
  record(ids: readonly string[], outcome: Outcome): void;
  /** Returns the number of events by outcome, and of all; at constant cost. */
  totals(): Readonly<Record<Outcome | 'sent', number>>;
  /** Returns the index of an id in order of assignment; -1 for an id that this ledger did not assign. */
  indexOf(id: string): number;
  /** Returns the outcome of an id; undefined for an id that this ledger did not assign. */
  outcomeOf(id: string): Outcome | undefined;
  /** Returns the ids of an outcome, in order of assignment. */
  ids(outcome: Outcome): string[];
}

/** The outcomes by their code in a ledger, which keeps one byte per event: there may be millions. */
const outcomesByCode = ['unknown', 'acknowledged', 'refused'] as const satisfies readonly Outcome[];

export function createLedger(name: string): Ledger {
  let codes = new Uint8Array(1024);
  const totals = { sent: 0, acknowledged: 0, refused: 0, unknown: 0 };
  const indexOf = (id: string): number => {
    const index =
      id.startsWith(`${name}-`) && /^\d{1,9}$/.test(id.slice(name.length + 1)) ? Number(id.slice(name.length + 1)) : -1;
    return index < totals.sent ? index : -1;
  };
  const outcomeAt = (index: number): Outcome => outcomesByCode[codes[index] ?? 0] ?? 'unknown';
  return {
    name,
    nextId() {
      if (totals.sent === codes.length) {
        const longer = new Uint8Array(codes.length * 2);
        longer.set(codes);
        codes = longer;
      }
      totals.unknown += 1;
      totals.sent += 1;
      return `${name}-${totals.sent - 1}`;
    },
    record(ids, outcome) {
      for (const id of ids) {
        const index = indexOf(id);
        if (index < 0) throw new Error(`${id} is not of this ledger`);
        totals[outcomeAt(index)] -= 1;
        totals[outcome] += 1;
        codes[index] = outcomesByCode.indexOf(outcome);
      }
    },
    totals: () => ({ ...totals }),
    indexOf,
    outcomeOf: (id) => (indexOf(id) < 0 ? undefined : outcomeAt(indexOf(id))),
    ids: (outcome) =>
      Array.from({ length: totals.sent }, (_, index) => index).flatMap((index) =>
        outcomeAt(index) === outcome ? [`${name}-${index}`] : [],
      ),
  };
}

/** Rows of the lake with one client id. */
export interface StoredEvent {
  /** The row's customEventName. */
  readonly id: string;
  readonly rows: number;
  readonly eventIds: number;
  /** Whether every row repeats the id in its parameters. */
  readonly whole: boolean;
}

const countSql = `
  SELECT coalesce(custom_event_name, '(no name)'), count(*)::INTEGER, count(DISTINCT event_id)::INTEGER,
    coalesce(bool_and(custom_event_params['${idParam}'] = custom_event_name), false)
  FROM events GROUP BY custom_event_name`;

/** Returns SQL for the rows of payments, like `countSql` for events. */
const countPaymentsSql = (files: readonly string[]): string => `
  SELECT id_transaction, count(*)::INTEGER, count(DISTINCT event_id)::INTEGER,
    coalesce(bool_and(currency = 'EUR' AND total = regexp_extract(id_transaction, '[0-9]+$')::DECIMAL(18,4) + 0.25), false)
  FROM read_parquet(${sqlList(files)}, hive_partitioning = false) GROUP BY id_transaction`;

async function runAll(connection: DuckDBConnection, sql: string): Promise<void> {
  const statements = await connection.extractStatements(sql);
  for (let index = 0; index < statements.count; index += 1) await (await statements.prepare(index)).run();
}

/** Returns local paths of files, which stay valid: those of a bucket are copied. */
async function fetchAll(files: readonly DataFile[]): Promise<string[]> {
  let folder: string | undefined;
  return await localFiles.use(files, async (paths) =>
    paths.map((file, index) => {
      if (file === files[index]?.absolutePath) return file;
      folder ??= testFolder();
      const copy = path.join(folder, `${index}.parquet`);
      copyFileSync(file, copy);
      return copy;
    }),
  );
}

/** Renders the views of snapshot.sql over copies of the files of a lake in a bucket. */
async function bucketViews(lakeDir: string): Promise<string> {
  const { files } = await readSnapshot(path.join(lakeDir, 'events'));
  return localViewsSql(new Map([['events', await fetchAll(files)]]));
}

/**
 * Counts every row of the lake by client id, with plain DuckDB through `lake/snapshot.sql`, statement by statement.
 * Yields them in pieces.
 */
export async function* readLake(dataDir: string): AsyncGenerator<StoredEvent[]> {
  const instance = await DuckDBInstance.create(':memory:', {
    memory_limit: '2GB',
    threads: '2',
    autoinstall_known_extensions: 'false',
  });
  const connection = await instance.connect();
  try {
    const lakeDir = path.join(dataDir, 'lake');
    const { files } = await readSnapshot(path.join(lakeDir, 'payments'));
    const isBucket = openStore(lakeDir).folder === undefined;
    if (isBucket) await connection.run(await bucketViews(lakeDir));
    else await runAll(connection, readFileSync(path.join(lakeDir, 'snapshot.sql'), 'utf8'));
    const payments = await fetchAll(files);
    for (const sql of [countSql, ...(payments.length === 0 ? [] : [countPaymentsSql(payments)])]) {
      const pieces = (await connection.stream(sql)).yieldRowsJs() as AsyncIterable<[string, number, number, boolean][]>;
      for await (const rows of pieces)
        yield rows.map(([id, count, eventIds, whole]) => ({ id, rows: count, eventIds, whole }));
    }
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

/** Counts every row of the lake by client id, all at once. */
export async function countLake(dataDir: string): Promise<StoredEvent[]> {
  const counted: StoredEvent[] = [];
  for await (const rows of readLake(dataDir)) counted.push(...rows);
  return counted;
}

/** Comparison of a ledger with the lake. The lists have client ids. */
export interface Reconciliation {
  readonly sent: number;
  readonly acknowledged: number;
  readonly refused: number;
  readonly unknown: number;
  /** Distinct events of this ledger that the lake has. */
  readonly stored: number;
  /** Of the unknown ones, those that the lake has. */
  readonly unknownStored: number;
  /** Acknowledged, and not in the lake. */
  readonly lost: readonly string[];
  /** In the lake more than once. */
  readonly doubled: readonly string[];
  /** In the lake although never sent, or rejected. */
  readonly invented: readonly string[];
  /** In the lake with wrong parameters. */
  readonly damaged: readonly string[];
}

/** Creates a comparison of a ledger with rows that are added one by one; keeps one byte per event, and the errors. */
function createTally(ledger: Ledger): { take(row: StoredEvent): void; result(): Reconciliation } {
  const stored = new Uint8Array(ledger.totals().sent);
  const found = {
    stored: 0,
    unknownStored: 0,
    doubled: [] as string[],
    invented: [] as string[],
    damaged: [] as string[],
  };
  return {
    take(row) {
      const outcome = ledger.outcomeOf(row.id);
      if (row.rows > 1 || row.eventIds > 1) found.doubled.push(row.id);
      if (outcome === undefined || outcome === 'refused') found.invented.push(row.id);
      if (outcome === undefined) return;
      stored[ledger.indexOf(row.id)] = 1;
      found.stored += 1;
      if (outcome === 'unknown') found.unknownStored += 1;
      if (!row.whole) found.damaged.push(row.id);
    },
    result: () => ({
      ...ledger.totals(),
      ...found,
      lost: ledger.ids('acknowledged').filter((id) => stored[ledger.indexOf(id)] !== 1),
    }),
  };
}

/** Compares a ledger with a full count of the lake, which must have this ledger's events only. */
export function reconcile(ledger: Ledger, rows: readonly StoredEvent[]): Reconciliation {
  const tally = createTally(ledger);
  for (const row of rows) tally.take(row);
  return tally.result();
}

/**
 * Compares several ledgers with a full count of the lake, which must have their events only: any other one is invented.
 */
export async function reconcileLake(dataDir: string, ledgers: readonly Ledger[]): Promise<Reconciliation[]> {
  const tallies = ledgers.map(createTally);
  for await (const rows of readLake(dataDir)) {
    for (const row of rows) {
      const owner = ledgers.findIndex((ledger) => row.id.startsWith(`${ledger.name}-`));
      tallies[Math.max(0, owner)]?.take(row);
    }
  }
  return tallies.map((tally) => tally.result());
}

/** Formats a result as one log line. */
export function describeReconciliation(result: Reconciliation): string {
  const { lost, doubled, invented, damaged, ...counts } = result;
  const lists = { lost: lost.length, doubled: doubled.length, invented: invented.length, damaged: damaged.length };
  return Object.entries({ ...counts, ...lists })
    .map(([name, count]) => `${name} ${count}`)
    .join(', ');
}

/**
 * Throws unless every acknowledged event is in the lake exactly once and complete, and all other rows belong to unknown
 * ones.
 */
export function assertExactlyOnce(result: Reconciliation): void {
  const wrong = (['lost', 'doubled', 'invented', 'damaged'] as const).filter((kind) => result[kind].length > 0);
  if (wrong.length === 0) return;
  const examples = wrong.map((kind) => `${kind}: ${result[kind].slice(0, 5).join(', ')}`);
  throw new Error(`${describeReconciliation(result)}; ${examples.join('; ')}`);
}
