import { openDuckdb, type DuckdbOptions } from '../../lake/sql/duckdb.ts';
import { sqlList } from '../../lake/sql/literals.ts';
import { findLakeState } from '../../lake/log/lake-state.ts';
import { listLoadStates, type LoadStatus } from '../../lake/log/load-state.ts';
import { listLog, readCommit } from '../../lake/log/log-files.ts';
import { readSnapshot } from '../../lake/log/snapshot.ts';
import { datasets } from '../../datasets/dataset.ts';
import { sweepLoadFolders } from '../../lake/files/load-folders.ts';
import { hasTable, tablePaths } from '../../lake/lake.ts';
import { openTable, type TableOptions } from '../../lake/log/table.ts';

/** A load of a table, as `load list` shows it. */
interface ListedLoad {
  readonly load: string;
  readonly dataset: string;
  /** `review`: loaded, and loading its file again looks through its rows anew, since another load was undone. */
  readonly status: LoadStatus;
  /** Rows of it that are in the table now. */
  readonly rows: number;
  /** Name of the file, while the history has its commit. */
  readonly file?: string;
  /** When it was loaded, ISO 8601, while the history has its commit. */
  readonly at?: string;
}

interface Origin {
  readonly file: string;
  readonly at: string;
}

/** What the commits that the log still has say of where loads came from. */
async function readOrigins(tableDir: string): Promise<ReadonlyMap<string, Origin>> {
  const origins = new Map<string, Origin>();
  for (const version of (await listLog(tableDir)).commits) {
    const { actions } = await readCommit(tableDir, version);
    const info = actions.find((action) => action.commitInfo !== undefined)?.commitInfo;
    if (findLakeState(info)?.cause !== 'load') continue;
    const { load, file } = info?.operationParameters ?? {};
    origins.set(String(load), { file: String(file), at: new Date(info?.timestamp ?? 0).toISOString() });
  }
  return origins;
}

/** Lists every load that a table has known, those that were undone among them. Reads one column of the table. */
export async function listLoads(
  tableDir: string,
  dataset: string,
  limits: Pick<DuckdbOptions, 'memoryMb' | 'threads'>,
): Promise<ListedLoad[]> {
  const { files, txns, emptyFile } = await readSnapshot(tableDir);
  const states = listLoadStates(txns);
  if (states.size === 0) return [];
  const duckdb = await openDuckdb(limits);
  try {
    const counted = await duckdb.rows(
      `SELECT load_id, count(*) AS n FROM read_parquet(${sqlList([emptyFile, ...files.map((file) => file.absolutePath)])}, union_by_name = true, hive_partitioning = false) WHERE load_id IS NOT NULL GROUP BY load_id`,
    );
    const rows = new Map(counted.map((row) => [String(row['load_id']), Number(row['n'])]));
    const origins = await readOrigins(tableDir);
    return [...states]
      .map(([load, { status }]) => ({ load, dataset, status, rows: rows.get(load) ?? 0, ...origins.get(load) }))
      .toSorted((a, b) => ((a.at ?? '') < (b.at ?? '') ? -1 : 1));
  } finally {
    duckdb.close();
  }
}

/** Removes what killed loads have left in any table. Loads that are under way stay. Returns how many files went. */
export async function sweepLoads(lakeDir: string, options: TableOptions): Promise<number> {
  let removed = 0;
  for (const dataset of datasets.values()) {
    if (!dataset.isLoadable || !(await hasTable(lakeDir, dataset))) continue;
    removed += await sweepLoadFolders(await openTable(tablePaths(lakeDir, dataset).table, options));
  }
  return removed;
}
