import path from 'node:path';
import { AppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { waitForLock } from '../../runtime/files/lock.ts';
import { recoverChanges } from '../../lake/files/change.ts';
import { countFailedRows, failedRowsFolder, listFailedRows, removeFailedRows } from '../../lake/files/failed-events.ts';
import { rewriteFiles } from '../../lake/files/rewrite.ts';
import { openStagingFolder } from '../../lake/files/staging.ts';
import { assertFilesWhole } from '../../lake/files/data-file.ts';
import { lakePaths, tablePaths } from '../../lake/lake.ts';
import type { Action } from '../../lake/log/actions.ts';
import {
  nextAvailableAtMs,
  findLoadState,
  isSameLoadState,
  listLoadStates,
  toLoadTxn,
  findLakeState,
  type LoadStatus,
} from '../../lake/log/lake-state.ts';
import { type DataFile, readSnapshot } from '../../lake/log/snapshot.ts';
import type { Table } from '../../lake/log/table.ts';
import { openDuckdb, type Duckdb, type DuckdbOptions } from '../../lake/sql/duckdb.ts';
import { sqlList, sqlText } from '../../lake/sql/literals.ts';
import { listLog, readCommit } from '../../lake/log/log-files.ts';

/**
 * Undoing a load: its rows leave the table by one commit, and with them its failed rows. Files that have rows of others
 * too are written again without those of the load; sealed ones give up their place in time, as after an erasure
 * (lake/files/rewrite.ts). The load may then be made again. Another load may have left out rows that this one had brought:
 * loading its file again looks through them anew. A load that is on its way fails where it has left out rows, and a
 * flush judges its batch again.
 * Crash: all or nothing, as a load.
 */

export interface UndoDependencies {
  readonly table: Table;
  readonly lakeDir: string;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly signal: AbortSignal;
  readonly limits: Pick<DuckdbOptions, 'memoryMb' | 'threads'>;
}

export interface UndoneLoad {
  readonly load: string;
  /** Rows taken out of the table. */
  readonly rows: number;
  readonly failedRows: number;
  /** The load was undone before. */
  readonly undoneBefore?: true;
}

const lockWaitMs = 120_000;
const filesPerLook = 64;

interface Hit {
  readonly file: DataFile;
  readonly rows: number;
}

async function findHits(duckdb: Duckdb, table: Table, loadId: string): Promise<Hit[]> {
  const { files, emptyFile } = table.snapshot();
  // Rows of the load that a damaged file no longer shows would stay.
  await assertFilesWhole(files);
  const hits: Hit[] = [];
  for (let from = 0; from < files.length; from += filesPerLook) {
    const byPath = new Map(files.slice(from, from + filesPerLook).map((file) => [file.absolutePath, file]));
    const found = await duckdb.rows(
      `SELECT filename, count(*) AS n FROM read_parquet(${sqlList([emptyFile, ...byPath.keys()])}, union_by_name = true, hive_partitioning = false, filename = true)
       WHERE load_id = ${sqlText(loadId)} GROUP BY filename ORDER BY filename`,
    );
    for (const row of found) {
      const file = byPath.get(String(row['filename']));
      if (file !== undefined) hits.push({ file, rows: Number(row['n']) });
    }
  }
  return hits;
}

async function takeOut(dependencies: UndoDependencies, stagingDir: string, loadId: string): Promise<UndoneLoad> {
  const { table, lakeDir, clock, crashPoint, limits, signal } = dependencies;
  const state = findLoadState(table.state().txns, loadId);
  if (state === undefined)
    throw new AppError('not_found', `there is no load ${loadId}`, { hint: "'tributary load list' lists them." });
  if (state.status === 'undone') return { load: loadId, rows: 0, failedRows: 0, undoneBefore: true };
  const failedFolder = failedRowsFolder(lakePaths(lakeDir).failed, table.dir);
  const failedFiles = (await listFailedRows(failedFolder, table.state().txns)).files.filter((file) =>
    file.includes(loadId),
  );
  const failedRows = await countFailedRows(failedFiles);
  const work = await openStagingFolder(stagingDir, 'the undoing of a load');
  const duckdb = await openDuckdb({ ...limits, tempDir: path.join(work.folder, 'spill') });
  try {
    const hits = await findHits(duckdb, table, loadId);
    const rows = hits.reduce((sum, hit) => sum + hit.rows, 0);
    const toQuery = (source: string): string => {
      if (signal.aborted) throw new AppError('stopping', 'the undoing was stopped: nothing was changed');
      return `SELECT * FROM ${source} WHERE load_id IS DISTINCT FROM ${sqlText(loadId)}`;
    };
    await rewriteFiles(
      { table, stagingDir, duckdb, clock, crashPoint },
      hits.map((hit) => ({ file: hit.file, rowsLeftOut: hit.rows, toQuery })),
      ({ txns }, lake) => {
        if (!isSameLoadState(findLoadState(txns, loadId), state))
          throw new AppError('commit_conflict', `the load ${loadId} was made again meanwhile: nothing was changed`, {
            hint: "See 'tributary load list', then repeat the command.",
          });
        const nowMs = clock.nowMs();
        const others = [...listLoadStates(txns)].filter(([id, { status }]) => id !== loadId && status === 'loaded');
        return {
          cause: 'unload',
          actions: [
            { txn: toLoadTxn(loadId, { ...state, status: 'undone' }, nowMs) },
            ...others.map(([id, other]): Action => ({ txn: toLoadTxn(id, { ...other, status: 'review' }, nowMs) })),
          ],
          // It brings no rows. But a flush that is on its way may hold one for a repeat of a row that goes: this tells
          // it to judge again, as after a load.
          availableAtMs: nextAvailableAtMs(clock, lake),
          totals: { stored: -rows, failed: -failedRows, erased: rows + failedRows },
          metrics: { load: loadId, rows, failed: failedRows },
        };
      },
    );
    await crashPoint('undo-committed');
    await removeFailedRows(failedFolder, failedFiles, loadId);
    return { load: loadId, rows, failedRows };
  } finally {
    duckdb.close();
    await work.close();
  }
}

/**
 * Takes the rows of a load out of its table. Can be repeated. Waits for whoever rewrites files of the table. Errors:
 * `not_found`, `locked`, `file_damaged` when a file that may have such rows is damaged, `disk`, `sql`, `stopping`.
 */
export async function undoLoad(dependencies: UndoDependencies, loadId: string): Promise<UndoneLoad> {
  const { table, lakeDir } = dependencies;
  const lock = await waitForLock(table.dir, 'the undoing of a load', lockWaitMs);
  try {
    await table.refresh();
    const { staging } = tablePaths(lakeDir, { table: path.basename(table.dir) });
    // An erasure that was killed may not have put the failed rows that it counted in their place.
    await recoverChanges(table, staging);
    return await takeOut(dependencies, staging, loadId);
  } finally {
    lock.release();
  }
}

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
