import { datasets } from '../../datasets/dataset.ts';
import { sweepLoadFolders } from '../../lake/files/load-folders.ts';
import { hasTable, tablePaths } from '../../lake/lake.ts';
import { openTable, type TableOptions } from '../../lake/log/table.ts';

/** Removes what killed loads have left in any table. Loads that are under way stay. Returns how many files went. */
export async function sweepLoads(lakeDir: string, options: TableOptions): Promise<number> {
  let removed = 0;
  for (const dataset of datasets.values()) {
    if (!dataset.isLoadable || !(await hasTable(lakeDir, dataset))) continue;
    removed += await sweepLoadFolders(await openTable(tablePaths(lakeDir, dataset).table, options));
  }
  return removed;
}
