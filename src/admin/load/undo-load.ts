import { localFiles } from '../../runtime/store/open-store.ts';
import path from 'node:path';
import { AppError } from '../../runtime/errors.ts';
import { countFailedRows, failedRowsFolder, removeFailedRows } from '../../lake/files/failed-events.ts';
import { rewriteFiles } from '../../lake/files/rewrite.ts';
import { openStagingFolder } from '../../lake/files/staging.ts';
import { assertFilesIntact } from '../../lake/files/data-file.ts';
import { prepareRemovedRows, type PreparedList } from '../../lake/event-index/erasure-list.ts';
import { lakePaths } from '../../lake/lake.ts';
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
import { type DataFile, readSnapshot, withEmptyFile } from '../../lake/log/snapshot.ts';
import type { Table } from '../../lake/log/table.ts';
import { openDuckdb, type Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlText } from '../../lake/sql/literals.ts';
import { listLog, readCommit } from '../../lake/log/log-files.ts';
import { countByFile, readFilesSql, stagingOf, withTableLock } from '../tables.ts';
import { listFailedOfLoad, type LoadDependencies } from './load.ts';

/**
 * Reverts a load: one commit removes its rows and its failed rows. Files that have other rows too are rewritten
 * (lake/files/rewrite.ts). The load can then be made again. Another load may have left out duplicates of the reverted
 * rows: loading its file again compares them again. A running load that has left out such rows fails, and a flush
 * classifies its batch again.
 */

export type UndoDependencies = Pick<
  LoadDependencies,
  'table' | 'lakeDir' | 'clock' | 'crashPoint' | 'signal' | 'limits'
>;

export interface UndoneLoad {
  readonly load: string;
  readonly rows: number;
  readonly failedRows: number;
  readonly undoneBefore?: true;
}

async function findHits(duckdb: Duckdb, table: Table, loadId: string) {
  const snapshot = table.snapshot();
  // A damaged file may hide rows of the load, which would stay.
  await assertFilesIntact(snapshot.files);
  const hits: { readonly file: DataFile; readonly rows: number }[] = [];
  for await (const { file, row } of countByFile(duckdb, snapshot, `load_id = ${sqlText(loadId)}`))
    hits.push({ file, rows: Number(row['n']) });
  return hits;
}

/** Prepares the erasure list with the rows of a load. */
function prepareUndoList(
  duckdb: Duckdb,
  table: Table,
  loadId: string,
  hits: readonly { readonly file: DataFile }[],
  workDir: string,
): Promise<PreparedList> {
  const files = hits.map(({ file }) => file);
  return localFiles.use(withEmptyFile(table.snapshot(), files), (paths) =>
    prepareRemovedRows({ table, duckdb }, workDir, [
      `SELECT id_app, event_id FROM ${readFilesSql(paths)} WHERE load_id = ${sqlText(loadId)}`,
    ]),
  );
}

async function removeRows(dependencies: UndoDependencies, loadId: string): Promise<UndoneLoad> {
  const { table, lakeDir, clock, crashPoint, limits, signal } = dependencies;
  const state = findLoadState(table.state().txns, loadId);
  if (state === undefined)
    throw new AppError('not_found', `load ${loadId} not found`, {
      hint: "Run 'tributary load list' for the ids of loads.",
    });
  if (state.status === 'undone') return { load: loadId, rows: 0, failedRows: 0, undoneBefore: true };
  const failedFolder = failedRowsFolder(lakePaths(lakeDir).failed, table.dir);
  const failedFiles = await listFailedOfLoad(table, lakeDir, loadId);
  const failedRows = await countFailedRows(failedFiles);
  const stagingDir = stagingOf(table, lakeDir);
  const work = await openStagingFolder(stagingDir, 'the undoing of a load');
  const duckdb = await openDuckdb({ ...limits, tempDir: path.join(work.folder, 'spill') });
  try {
    const hits = await findHits(duckdb, table, loadId);
    const rows = hits.reduce((sum, hit) => sum + hit.rows, 0);
    const toQuery = (source: string): string => {
      if (signal.aborted) throw new AppError('stopping', 'the undo was stopped: nothing was changed');
      return `SELECT * FROM ${source} WHERE load_id IS DISTINCT FROM ${sqlText(loadId)}`;
    };
    const list = rows === 0 ? undefined : await prepareUndoList(duckdb, table, loadId, hits, work.folder);
    await rewriteFiles(
      { table, stagingDir, duckdb, clock, crashPoint },
      hits.map((hit) => ({ file: hit.file, rowsLeftOut: hit.rows, toQuery })),
      ({ txns, version }, lake) => {
        if (!isSameLoadState(findLoadState(txns, loadId), state))
          throw new AppError('commit_conflict', `the load ${loadId} was made again meanwhile: nothing was changed`, {
            hint: "Check 'tributary load list', then repeat the command.",
          });
        const nowMs = clock.nowMs();
        const others = [...listLoadStates(txns)].filter(([id, { status }]) => id !== loadId && status === 'loaded');
        return {
          cause: 'unload',
          actions: [
            { txn: toLoadTxn(loadId, { ...state, status: 'undone' }, nowMs) },
            ...others.map(([id, other]): Action => ({ txn: toLoadTxn(id, { ...other, status: 'review' }, nowMs) })),
          ],
          // Makes a running flush classify again: it may have left out duplicates of the removed rows.
          availableAtMs: nextAvailableAtMs(clock, lake),
          totals: { stored: -rows, failed: -failedRows, erased: rows + failedRows },
          erasures: list?.toState(lake, version + 1),
          metrics: { load: loadId, rows, failed: failedRows },
        };
      },
      list?.file,
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
 * Removes the rows of a load from its table. Can be repeated. Waits for the maintenance lock. Errors: `not_found`,
 * `locked`, `file_damaged` if a file that may have such rows is damaged, `disk`, `sql`, `stopping`.
 */
export function undoLoad(dependencies: UndoDependencies, loadId: string): Promise<UndoneLoad> {
  const { table, lakeDir } = dependencies;
  // Settled first: an interrupted erasure may have counted failed rows that it has not replaced yet.
  return withTableLock(table, lakeDir, 'the undoing of a load', () => removeRows(dependencies, loadId));
}

interface ListedLoad {
  readonly load: string;
  readonly dataset: string;
  /** `review`: another load was undone since, so loading the file again compares its rows again. */
  readonly status: LoadStatus;
  readonly rows: number;
  /** Name of the file; absent if the log no longer has its commit. */
  readonly file?: string;
  /** ISO 8601; absent as `file`. */
  readonly at?: string;
}

/** Reads the file and the time of loads from the commits that the log still has. */
async function readOrigins(tableDir: string) {
  const origins = new Map<string, Required<Pick<ListedLoad, 'file' | 'at'>>>();
  for (const version of (await listLog(tableDir)).commits) {
    const { actions } = await readCommit(tableDir, version);
    const info = actions.find((action) => action.commitInfo !== undefined)?.commitInfo;
    if (findLakeState(info)?.cause !== 'load') continue;
    const { load, file } = info?.operationParameters ?? {};
    origins.set(String(load), { file: String(file), at: new Date(info?.timestamp ?? 0).toISOString() });
  }
  return origins;
}

/** Lists all loads of a table, undone ones included. Reads one column of the table. */
export async function listLoads(
  tableDir: string,
  dataset: string,
  limits: UndoDependencies['limits'],
): Promise<ListedLoad[]> {
  const snapshot = await readSnapshot(tableDir);
  const states = listLoadStates(snapshot.txns);
  if (states.size === 0) return [];
  const duckdb = await openDuckdb(limits);
  try {
    const counted = await localFiles.use(withEmptyFile(snapshot, snapshot.files), (paths) =>
      duckdb.rows(
        `SELECT load_id, count(*) AS n FROM ${readFilesSql(paths)} WHERE load_id IS NOT NULL GROUP BY load_id`,
      ),
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
