import { readFileSync } from 'node:fs';
import path from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';

/**
 * A client's own book of what it sent and what it was told, and its comparison with the lake.
 *
 * Each event has an id that only this ledger gives out; it travels as customEventName and again in customEventParams, so
 * that a stored row shows whether it is whole. An event is sent once: its row may be there if the answer is unknown, must
 * be there once if it was acknowledged, and must not be there if it was refused.
 */
export type Outcome = 'acknowledged' | 'refused' | 'unknown';

/** Name of the parameter that repeats the event's id. */
export const idParam = 'ledger_id';

export interface Ledger {
  /** Start of every id; tells this ledger's events from others in the same lake. */
  readonly name: string;
  /** Gives out the next id. The event counts as unknown until `record` says otherwise. */
  nextId(): string;
  /** Enters what became of events. */
  record(ids: readonly string[], outcome: Outcome): void;
  /** Number of events by outcome, and all of them. */
  totals(): Readonly<Record<Outcome | 'sent', number>>;
  /** Outcome of an id; undefined for one that this ledger never gave out. */
  outcomeOf(id: string): Outcome | undefined;
  /** The ids of an outcome, in the order they were given out. */
  ids(outcome: Outcome): string[];
}

/** Creates an empty ledger. */
export function createLedger(name: string): Ledger {
  const outcomes: Outcome[] = [];
  const indexOf = (id: string): number => (id.startsWith(`${name}-`) && /^\d{1,9}$/.test(id.slice(name.length + 1)) ? Number(id.slice(name.length + 1)) : -1);
  return {
    name,
    nextId: () => `${name}-${outcomes.push('unknown') - 1}`,
    record(ids, outcome) {
      for (const id of ids) {
        if (outcomes[indexOf(id)] === undefined) throw new Error(`${id} is not of this ledger`);
        outcomes[indexOf(id)] = outcome;
      }
    },
    totals() {
      const totals = { sent: outcomes.length, acknowledged: 0, refused: 0, unknown: 0 };
      for (const outcome of outcomes) totals[outcome] += 1;
      return totals;
    },
    outcomeOf: (id) => outcomes[indexOf(id)],
    ids: (outcome) => outcomes.flatMap((other, index) => (other === outcome ? [`${name}-${index}`] : [])),
  };
}

/** What the lake has under one client id. */
export interface StoredEvent {
  /** The row's customEventName. */
  readonly id: string;
  readonly rows: number;
  readonly eventIds: number;
  /** Every row repeats the id in its parameters. */
  readonly whole: boolean;
}

const countSql = `
  SELECT coalesce(custom_event_name, '(no name)'), count(*)::INTEGER, count(DISTINCT event_id)::INTEGER,
    coalesce(bool_and(custom_event_params['${idParam}'] = custom_event_name), false)
  FROM events GROUP BY custom_event_name`;

/** Counts every row of the lake by client id, with plain DuckDB through `lake/snapshot.sql`, statement by statement. */
export async function countLake(dataDir: string): Promise<StoredEvent[]> {
  const instance = await DuckDBInstance.create(':memory:', { memory_limit: '2GB', threads: '2', autoinstall_known_extensions: 'false' });
  const connection = await instance.connect();
  try {
    const statements = await connection.extractStatements(readFileSync(path.join(dataDir, 'lake', 'snapshot.sql'), 'utf8'));
    for (let index = 0; index < statements.count; index += 1) await (await statements.prepare(index)).run();
    const rows = (await connection.runAndReadAll(countSql)).getRowsJS() as [string, number, number, boolean][];
    return rows.map(([id, count, eventIds, whole]) => ({ id, rows: count, eventIds, whole }));
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

/** The ledger against the lake. The lists name client ids. */
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
  /** In the lake, and never sent, or refused. */
  readonly invented: readonly string[];
  /** In the lake with parameters that are not its own. */
  readonly damaged: readonly string[];
}

/** Compares a ledger with a full count of the lake, which must hold this ledger's events only. */
export function reconcile(ledger: Ledger, rows: readonly StoredEvent[]): Reconciliation {
  const stored = new Set(rows.map((row) => row.id));
  const known = rows.filter((row) => ledger.outcomeOf(row.id) !== undefined);
  const { sent, acknowledged, refused, unknown } = ledger.totals();
  return {
    sent,
    acknowledged,
    refused,
    unknown,
    stored: known.length,
    unknownStored: known.filter((row) => ledger.outcomeOf(row.id) === 'unknown').length,
    lost: ledger.ids('acknowledged').filter((id) => !stored.has(id)),
    doubled: rows.filter((row) => row.rows > 1 || row.eventIds > 1).map((row) => row.id),
    invented: rows.filter((row) => [undefined, 'refused'].includes(ledger.outcomeOf(row.id))).map((row) => row.id),
    damaged: known.filter((row) => !row.whole).map((row) => row.id),
  };
}

/** One line for the log of a run. */
export function describeReconciliation(result: Reconciliation): string {
  const { lost, doubled, invented, damaged, ...counts } = result;
  const lists = { lost: lost.length, doubled: doubled.length, invented: invented.length, damaged: damaged.length };
  return Object.entries({ ...counts, ...lists }).map(([name, count]) => `${name} ${count}`).join(', ');
}

/** Throws unless every acknowledged event is in the lake exactly once, whole, and nothing else is there but unknown ones. */
export function assertExactlyOnce(result: Reconciliation): void {
  const wrong = (['lost', 'doubled', 'invented', 'damaged'] as const).filter((kind) => result[kind].length > 0);
  if (wrong.length === 0) return;
  const examples = wrong.map((kind) => `${kind}: ${result[kind].slice(0, 5).join(', ')}`);
  throw new Error(`${describeReconciliation(result)}; ${examples.join('; ')}`);
}
