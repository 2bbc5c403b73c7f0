/**
 * Enrichment of what is there: rows that were written before, or while the database could not be read, get what their
 * addresses and User-Agents say now.
 *
 * In: the live files of every table that has the columns. Out: one commit for each file that has rows to fill.
 * Invariant: what a row says stays; no row comes, goes or changes its place, and `available_at` stays.
 * Crash: between two files nothing is left; within one the change is completed or dropped, under the maintenance
 * lock. The command can be repeated: a file that has nothing to fill is not written.
 */
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import { datasets, type Dataset } from '../datasets/dataset.ts';
import { findEnrichedGroups, type EnrichedGroup } from '../datasets/enriched-columns.ts';
import { type Enricher, createLookUps, type EnrichedSelect, type LookUps } from '../lake/files/enriched-rows.ts';
import { rewriteFiles } from '../lake/files/rewrite.ts';
import { recoverChanges } from '../lake/files/change.ts';
import { assertFilesWhole } from '../lake/files/data-file.ts';
import { hasTable, openDatasetTable, tablePaths } from '../lake/lake.ts';
import type { DataFile } from '../lake/log/snapshot.ts';
import type { Table } from '../lake/log/table.ts';
import type { Duckdb } from '../lake/sql/duckdb.ts';
import { sqlList } from '../lake/sql/literals.ts';

export interface EnrichDependencies {
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  readonly enricher: Enricher;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  /** Ends the work after the file in hand. */
  readonly signal: AbortSignal;
  readonly retentionMs: number;
}

/** What was done in a table. */
export interface TableEnriched {
  readonly table: string;
  /** Rows that were filled, in part or in full. */
  readonly rows: number;
  readonly filesRewritten: number;
  /** Live files that were looked through. */
  readonly files: number;
}

const lockWaitMs = 120_000;
/** A command has the time that a flush has not. */
const agentBudgetMs = Number.POSITIVE_INFINITY;

/** The rows of a file with what is known of them. A join keeps no order, and sealed files are sorted. */
function toQuery(select: EnrichedSelect): (source: string) => string {
  const replaced = [...select.values].map(([column, value]) => `${value} AS ${column}`).join(', ');
  return (source) => `SELECT r.* REPLACE (${replaced}) FROM ${source} AS r ${select.joins} ORDER BY r.file_row_number`;
}

/** A table whose files are filled one after the other. */
interface TableToEnrich {
  readonly table: Table;
  readonly groups: readonly EnrichedGroup[];
  readonly lookUps: LookUps;
}

/** Fills one file; returns how many of its rows. */
async function enrichFile(
  { duckdb, clock, crashPoint, ...paths }: EnrichDependencies & { readonly stagingDir: string },
  { table, groups, lookUps }: TableToEnrich,
  file: DataFile,
): Promise<number> {
  const { emptyFile } = table.snapshot();
  const source = `read_parquet(${sqlList([emptyFile, file.absolutePath])}, union_by_name = true, hive_partitioning = false)`;
  try {
    const { select } = await lookUps.lookUp({ source, groups, has: () => true, agentBudgetMs });
    if (select === undefined) return 0;
    const count = `SELECT count(*) AS n FROM ${source} AS r ${select.joins} WHERE ${select.isFilled}`;
    const [counted] = await lookUps.joined(() => duckdb.rows(count));
    const rows = Number(counted?.['n']);
    if (rows === 0) return 0;
    // What is written anew gets a hash of its own: damage would be believed from then on.
    await assertFilesWhole([file]);
    await lookUps.joined(() =>
      rewriteFiles(
        { table, stagingDir: paths.stagingDir, duckdb, clock, crashPoint },
        [{ file, rowsLeftOut: 0, toQuery: toQuery(select) }],
        { cause: 'enrich', metrics: { rows } },
      ),
    );
    return rows;
  } finally {
    await lookUps.release();
  }
}

async function enrichTable(dependencies: EnrichDependencies, dataset: Dataset): Promise<TableEnriched> {
  const { lakeDir, clock, crashPoint, retentionMs, signal } = dependencies;
  const { staging: stagingDir, maintenanceLock } = tablePaths(lakeDir, dataset);
  const groups = findEnrichedGroups(dataset);
  const lookUps = createLookUps(dependencies.duckdb, dependencies.enricher, dataset.table);
  const lock = await waitForLock(maintenanceLock, 'an enrichment', lockWaitMs);
  try {
    // A lake of an earlier version gets the columns.
    const table = await openDatasetTable(lakeDir, dataset, { clock, crashPoint, retentionMs });
    await recoverChanges(table, stagingDir);
    const { files } = table.snapshot();
    let [rows, filesRewritten] = [0, 0];
    for (const file of files) {
      if (signal.aborted) throw new AppError('stopping', 'the enrichment was stopped; repeat it to finish');
      const filled = await enrichFile({ ...dependencies, stagingDir }, { table, groups, lookUps }, file);
      rows += filled;
      filesRewritten += filled > 0 ? 1 : 0;
    }
    return { table: dataset.table, rows, filesRewritten, files: files.length };
  } finally {
    lock.release();
    await lookUps.forget();
  }
}

/**
 * Fills what rows do not say and their addresses and User-Agents do, in every table that has rows. Works beside a
 * running compactor, which seals nothing meanwhile. Space: that of the rewritten files, until the retention has passed.
 * Errors: `file_damaged` when a file to be rewritten is damaged, `locked`, `stopping`, `disk`, `memory`.
 */
export async function enrichLake(dependencies: EnrichDependencies): Promise<TableEnriched[]> {
  const done: TableEnriched[] = [];
  for (const dataset of datasets.values()) {
    if (findEnrichedGroups(dataset).length === 0 || !(await hasTable(dependencies.lakeDir, dataset))) continue;
    done.push(await enrichTable(dependencies, dataset));
  }
  return done;
}
