/**
 * Applies the age limits of rows on command, as of the day of the machine's clock, which the operator confirms.
 *
 * In: the limits (lake/expiry/age-rules.ts). Out: commits that remove expired rows of each table, and the recorded day.
 * Crash: rows that were removed stay removed; the command can be repeated, and the compactor continues too.
 */
import { events, type Dataset } from '../datasets/dataset.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { createCutoffs, createExpiredTest, kindsOf, type AgeRules, type Cutoffs } from '../lake/expiry/age-rules.ts';
import { dryRunExpiry, expireSome, type ExpiredRows, type ExpiryDryRun } from '../lake/expiry/expire-files.ts';
import { assertTablesNamed, listOtherTables, openDatasetTable, tablePaths } from '../lake/lake.ts';
import { readSnapshot } from '../lake/log/snapshot.ts';
import type { Table } from '../lake/log/table.ts';
import { removeFailed } from '../lake/remove-failed.ts';
import type { Duckdb } from '../lake/sql/duckdb.ts';
import { stagingOf, withTableLock } from './tables.ts';

interface ExpireDependencies {
  /** The events table. */
  readonly table: Table;
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly retentionMs: number;
  readonly signal: AbortSignal;
}

/** Figures of a table; failed events are those of the stream. */
interface ExpiredFromTable extends ExpiredRows {
  readonly failedEvents: number;
}

async function listAllTables(lakeDir: string): Promise<Dataset[]> {
  await assertTablesNamed(lakeDir);
  return [events, ...(await listOtherTables(lakeDir))];
}

/** Counts what the age limits would remove on a day, by table. Tables without such rows are left out. */
export async function dryRunExpire(
  { lakeDir, duckdb }: Pick<ExpireDependencies, 'lakeDir' | 'duckdb'>,
  rules: AgeRules,
  day: string,
): Promise<Record<string, ExpiryDryRun>> {
  const tables: Record<string, ExpiryDryRun> = {};
  for (const dataset of await listAllTables(lakeDir)) {
    const snapshot = await readSnapshot(tablePaths(lakeDir, dataset).table);
    const found = await dryRunExpiry(duckdb, snapshot, createCutoffs(rules, day, kindsOf(dataset)));
    if (found.rows > 0) tables[dataset.table] = found;
  }
  return tables;
}

/** Removes the expired rows of a table under its lock, a few files per commit: seals wait for one commit only. */
async function expireTable(
  dependencies: ExpireDependencies,
  dataset: Dataset,
  table: Table,
  readRules: () => Promise<AgeRules>,
  day: string,
): Promise<ExpiredFromTable> {
  const { lakeDir, signal } = dependencies;
  const work = { ...dependencies, dataset, table, stagingDir: stagingOf(table, lakeDir) };
  let settled = new Set<string>();
  let settledBy = '';
  /** Reads the limits under the lock: one may have been raised since. */
  const findCutoffs = async (): Promise<Cutoffs> => {
    const rules = await readRules();
    const key = JSON.stringify(rules);
    if (key !== settledBy) [settled, settledBy] = [new Set(), key];
    return createCutoffs(rules, day, kindsOf(dataset));
  };
  const sum = { rows: 0, failedEvents: 0, filesRemoved: 0, filesRewritten: 0 };
  if (dataset === events) {
    const failed = { dataset, table, lakeDir, crashPoint: dependencies.crashPoint };
    sum.failedEvents = await withTableLock(table, lakeDir, 'the age limit', async () =>
      removeFailed(failed, 'expire', createExpiredTest(await findCutoffs())),
    );
  }
  for (;;) {
    if (signal.aborted) throw new AppError('stopping', 'the removal was stopped; repeat it to finish');
    const removed = await withTableLock(table, lakeDir, 'the age limit', async () => {
      const cutoffs = await findCutoffs();
      return expireSome(work, cutoffs, settled);
    });
    if (removed === 'continue') continue;
    // The compactor removes the rows of files that wait.
    if (removed === undefined || removed === 'wait') return sum;
    sum.rows += removed.rows;
    sum.filesRemoved += removed.filesRemoved;
    sum.filesRewritten += removed.filesRewritten;
  }
}

/**
 * Removes the expired rows of each table as of a day, and records it. Returns the figures by table, of those with such
 * rows. `readRules` is called before each commit. Errors: its own, `locked`, `file_damaged`, `disk`, `sql`, `stopping`.
 */
export async function expireAll(
  dependencies: ExpireDependencies,
  readRules: () => Promise<AgeRules>,
  day: string,
): Promise<Record<string, ExpiredFromTable>> {
  const { lakeDir, clock, crashPoint, retentionMs } = dependencies;
  const tables: Record<string, ExpiredFromTable> = {};
  for (const dataset of await listAllTables(lakeDir)) {
    const table =
      dataset === events
        ? dependencies.table
        : await openDatasetTable(lakeDir, dataset, { clock, crashPoint, retentionMs });
    const removed = await expireTable(dependencies, dataset, table, readRules, day);
    if (removed.filesRemoved + removed.filesRewritten + removed.failedEvents > 0) tables[dataset.table] = removed;
  }
  await dependencies.table.commit((_state, { expiryDay = '' }) => ({
    cause: 'expire',
    actions: [],
    ...(day > expiryDay ? { expiryDay: day } : {}),
  }));
  return tables;
}
