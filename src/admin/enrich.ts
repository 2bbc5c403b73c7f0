/**
 * Enrichment of existing rows, which were written by an earlier version or while the geo database was unreadable.
 * In: the live files of every table with enriched columns. Out: one commit per file with rows to fill.
 * Invariant: existing values, the set of rows, their order and `available_at` stay.
 * Crash: a started change is completed or reverted under the maintenance lock. The command can be repeated: a file with
 * nothing to fill is not rewritten.
 */
import { localFiles } from '../runtime/store/open-store.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { datasets, type Dataset } from '../datasets/dataset.ts';
import { findEnrichedGroups, type EnrichedGroup } from '../datasets/enriched-columns.ts';
import { type Enricher, createRowLookups, type EnrichedSelect, type RowLookups } from '../lake/files/enriched-rows.ts';
import { rewriteFiles } from '../lake/files/rewrite.ts';
import { assertFilesIntact } from '../lake/files/data-file.ts';
import { hasTable, openDatasetTable, tablePaths } from '../lake/lake.ts';
import { withEmptyFile, type DataFile } from '../lake/log/snapshot.ts';
import type { Table } from '../lake/log/table.ts';
import type { Duckdb } from '../lake/sql/duckdb.ts';
import { readFilesSql, lockTable, settleTable } from './tables.ts';

interface EnrichDependencies {
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  readonly enricher: Enricher;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly signal: AbortSignal;
  readonly retentionMs: number;
}

export interface TableEnriched {
  readonly table: string;
  readonly rows: number;
  readonly filesRewritten: number;
  readonly files: number;
}

/** Looks up the missing values of a source's rows, and calls `write` with the number of rows to fill, if any. */
export async function fillRows<T>(
  duckdb: Duckdb,
  rowLookups: RowLookups,
  rows: Omit<Parameters<RowLookups['lookUp']>[0], 'agentBudgetMs'>,
  write: (select: EnrichedSelect, count: number) => Promise<T>,
): Promise<T | undefined> {
  const { select } = await rowLookups.lookUp({ ...rows, agentBudgetMs: Number.POSITIVE_INFINITY });
  if (select === undefined) return undefined;
  return rowLookups.joined(async () => {
    const counting = `SELECT count(*) AS n FROM ${rows.source} AS r ${select.joins} WHERE ${select.isFilled}`;
    const count = Number((await duckdb.rows(counting))[0]?.['n']);
    return count === 0 ? undefined : write(select, count);
  });
}

/** SQL of the rows of a file with the filled columns. A join keeps no order, and sealed files are sorted. */
function toQuery(select: EnrichedSelect): (source: string) => string {
  const replaced = [...select.values].map(([column, value]) => `${value} AS ${column}`).join(', ');
  return (source) => `SELECT r.* REPLACE (${replaced}) FROM ${source} AS r ${select.joins} ORDER BY r.file_row_number`;
}

interface TableToEnrich {
  readonly table: Table;
  readonly stagingDir: string;
  readonly groups: readonly EnrichedGroup[];
  readonly rowLookups: RowLookups;
}

async function enrichFile(
  { duckdb, clock, crashPoint }: EnrichDependencies,
  { table, stagingDir, groups, rowLookups }: TableToEnrich,
  file: DataFile,
): Promise<number> {
  try {
    const filled = await localFiles.use(withEmptyFile(table.snapshot(), [file]), (paths) => {
      const source = readFilesSql(paths);
      return fillRows(duckdb, rowLookups, { source, groups, has: () => true }, async (select, rows) => {
        // The rewrite would give damaged rows a valid checksum.
        await assertFilesIntact([file]);
        await rewriteFiles(
          { table, stagingDir, duckdb, clock, crashPoint },
          [{ file, rowsLeftOut: 0, toQuery: toQuery(select) }],
          { cause: 'enrich', metrics: { rows } },
        );
        return rows;
      });
    });
    return filled ?? 0;
  } finally {
    await rowLookups.release();
  }
}

async function enrichTable(dependencies: EnrichDependencies, dataset: Dataset): Promise<TableEnriched> {
  const { lakeDir, clock, crashPoint, retentionMs, signal } = dependencies;
  const { staging: stagingDir } = tablePaths(lakeDir, dataset);
  const groups = findEnrichedGroups(dataset);
  const rowLookups = createRowLookups(dependencies.duckdb, dependencies.enricher, dataset.table);
  const lock = await lockTable(lakeDir, dataset, 'an enrichment');
  try {
    // Adds the columns to a lake of an earlier version.
    const table = await openDatasetTable(lakeDir, dataset, { clock, crashPoint, retentionMs });
    await settleTable(table, lakeDir);
    const { files } = table.snapshot();
    let [rows, filesRewritten] = [0, 0];
    for (const file of files) {
      if (signal.aborted) throw new AppError('stopping', 'the enrichment was stopped; repeat it to finish');
      const filled = await enrichFile(dependencies, { table, stagingDir, groups, rowLookups }, file);
      rows += filled;
      filesRewritten += filled > 0 ? 1 : 0;
    }
    return { table: dataset.table, rows, filesRewritten, files: files.length };
  } finally {
    await lock.release();
    await rowLookups.forget();
  }
}

/**
 * Fills the enriched columns of every table, concurrently with a compactor, which does not seal meanwhile. Replaced
 * files take space until the retention has passed. Errors: `file_damaged` if a file to be rewritten is damaged,
 * `locked`, `stopping`, `disk`, `memory`.
 */
export async function enrichLake(dependencies: EnrichDependencies): Promise<TableEnriched[]> {
  const done: TableEnriched[] = [];
  for (const dataset of datasets.values()) {
    if (findEnrichedGroups(dataset).length === 0 || !(await hasTable(dependencies.lakeDir, dataset))) continue;
    done.push(await enrichTable(dependencies, dataset));
  }
  return done;
}
