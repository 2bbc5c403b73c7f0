import { localFiles } from '../runtime/store/open-store.ts';
import path from 'node:path';
import { recoverChanges } from '../lake/files/change.ts';
import { maintenanceLease, tablePaths, type TableName } from '../lake/lake.ts';
import { withEmptyFile, type DataFile, type Snapshot } from '../lake/log/snapshot.ts';
import type { Table } from '../lake/log/table.ts';
import type { Duckdb } from '../lake/sql/duckdb.ts';
import { sqlList } from '../lake/sql/literals.ts';
import { lockObjects, type ObjectLock } from '../runtime/store/object-lock.ts';

/** Acquires the maintenance lock of a table. Error: `locked`, which names the holder. */
export function lockTable(lakeDir: string, name: TableName, holder: string): Promise<ObjectLock> {
  return lockObjects(tablePaths(lakeDir, name).maintenanceLock, { lease: maintenanceLease(name), holder });
}

export const stagingOf = (table: Table, lakeDir: string): string =>
  tablePaths(lakeDir, { table: path.basename(table.dir) }).staging;

/** Finishes or reverts the changes that a crash has interrupted. Called under the maintenance lock. */
export async function settleTable(table: Table, lakeDir: string): Promise<void> {
  await table.refresh();
  await recoverChanges(table, stagingOf(table, lakeDir));
}

/** Runs work on a settled table under its maintenance lock. Errors: `locked`, those of the work. */
export async function withTableLock<T>(
  table: Table,
  lakeDir: string,
  holder: string,
  work: () => Promise<T>,
): Promise<T> {
  const lock = await lockTable(lakeDir, { table: path.basename(table.dir) }, holder);
  try {
    await settleTable(table, lakeDir);
    return await work();
  } finally {
    await lock.release();
  }
}

/** Maximum number of files that one query opens. */
const filesAtOnce = 64;

/** Splits a list into portions, by default of as many files as one query opens. */
export function* inPortions<T>(all: readonly T[], size = filesAtOnce): Generator<readonly T[], void, void> {
  for (let from = 0; from < all.length; from += size) yield all.slice(from, from + size);
}

export const readFilesSql = (files: readonly string[], more = ''): string =>
  `read_parquet(${sqlList(files)}, union_by_name = true, hive_partitioning = false${more})`;

/** Counts matching rows per file of a snapshot; files without one are left out. `aggregates`: more columns of each count. */
export async function* countByFile(
  duckdb: Duckdb,
  snapshot: Pick<Snapshot, 'files' | 'emptyFile'>,
  where: string,
  aggregates = '',
): AsyncGenerator<{ readonly file: DataFile; readonly row: Readonly<Record<string, unknown>> }, void, void> {
  for (const some of inPortions(snapshot.files)) {
    const found = await localFiles.use(withEmptyFile(snapshot, some), async (paths) => {
      const rows = await duckdb.rows(
        `SELECT filename, count(*) AS n${aggregates} FROM ${readFilesSql(paths, ', filename = true')}
         WHERE ${where} GROUP BY filename ORDER BY filename`,
      );
      return rows.map((row) => ({ file: some[paths.indexOf(String(row['filename'])) - 1], row }));
    });
    for (const { file, row } of found) if (file !== undefined) yield { file, row };
  }
}
