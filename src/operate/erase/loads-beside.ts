import { failedRowsFolder, listFailedRows, removeFailedRows } from '../../lake/files/failed-rows.ts';
import { hasRunningLoad } from '../../lake/files/load-folders.ts';
import { lakePaths } from '../../lake/lake.ts';
import { listLoadStates, type LoadState } from '../../lake/log/load-state.ts';
import type { Table } from '../../lake/log/table.ts';

/**
 * Loads beside an erasure: they hold no lock of a table, so that one that has read its file may commit rows of the
 * person after the table was looked through.
 */

/** The loads that a table has, by id. */
export type KnownLoads = ReadonlyMap<string, LoadState>;

/** What a table's log knows of loads now. */
export function listKnownLoads(table: Table): KnownLoads {
  return listLoadStates(table.state().txns);
}

/**
 * Removes the bad rows that killed loads have left: no log counts them, so nobody lists or erases them. Those of a load
 * that is under way stay.
 */
async function sweepFailedRows(table: Table, lakeDir: string): Promise<void> {
  const folder = failedRowsFolder(lakePaths(lakeDir).failed, table.dir);
  const before = (await listFailedRows(folder, table.state().txns)).stale;
  if (before.length === 0 || (await hasRunningLoad(table.dir))) return;
  // The load of such a file may have made its commit before it ended.
  await table.refresh();
  const { stale } = await listFailedRows(folder, table.state().txns);
  await removeFailedRows(
    folder,
    stale.filter((file) => before.includes(file)),
  );
}

/**
 * Says whether a load has committed rows to a table since it had those loads, or is under way and may. Removes what
 * killed loads have left.
 */
export async function hadLoadBeside(table: Table, lakeDir: string, known: KnownLoads): Promise<boolean> {
  await sweepFailedRows(table, lakeDir);
  // Before the log is read: a load that ends in between is seen by its commit.
  const isRunning = await hasRunningLoad(table.dir);
  await table.refresh();
  return (
    isRunning || [...listKnownLoads(table)].some(([id, { generation }]) => known.get(id)?.generation !== generation)
  );
}
