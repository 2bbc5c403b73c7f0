import { AppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import { waitForLock } from '../../runtime/files/lock.ts';
import path from 'node:path';
import { toAdd, writeDataFile } from '../../lake/files/data-file.ts';
import { countFailedRows, failedRowsFolder, listFailedRows, removeFailedRows } from '../../lake/files/failed-rows.ts';
import { openLoadFolder, sweepLoadFolders, unloadFolder, type LoadFolder } from '../../lake/files/load-folders.ts';
import { toWaiting } from '../../lake/files/rewrite.ts';
import { recoverIntents } from '../../lake/files/staged-rewrite.ts';
import { assertFilesWhole } from '../../lake/files/verify-files.ts';
import { lakePaths } from '../../lake/lake.ts';
import type { Action } from '../../lake/log/actions.ts';
import { nextAvailableAtMs } from '../../lake/log/available-at.ts';
import { findLoadState, isSameLoadState, listLoadStates, toLoadTxn } from '../../lake/log/load-state.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import type { Table } from '../../lake/log/table.ts';
import { openDuckdb, type Duckdb, type DuckdbOptions } from '../../lake/sql/duckdb.ts';
import { sqlList, sqlText } from '../../lake/sql/literals.ts';

/**
 * Undoing a load: its rows leave the table by one commit, and with them its failed rows. Files that have rows of others
 * too are written again without those of the load; sealed ones give up their place in time, as after an erasure
 * (lake/files/swap.ts). The load may then be made again. Another load may have left out rows that this one had brought:
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

interface Rooms {
  readonly young: LoadFolder;
  readonly sealed: LoadFolder;
}

/** Writes a file without the rows of a load; gives what the commit says of the two. */
async function writeWithout(
  duckdb: Duckdb,
  { table, clock }: UndoDependencies,
  { file, rows }: Hit,
  loadId: string,
  { folder, room }: { readonly folder: LoadFolder; readonly room: string },
): Promise<Action[]> {
  const nowMs = clock.nowMs();
  const removal: Action = { remove: { path: encodeURI(file.path), deletionTimestamp: nowMs, dataChange: true } };
  if (file.young && rows === file.numRecords) return [removal];
  const { emptyFile } = table.snapshot();
  const source = `read_parquet(${sqlList([emptyFile, file.absolutePath])}, union_by_name = true, hive_partitioning = false)`;
  const target = path.join(room, path.basename(file.path));
  const query = `SELECT * FROM ${source} WHERE load_id IS DISTINCT FROM ${sqlText(loadId)}`;
  const written = await writeDataFile(duckdb, query, target, file.young ? 'young' : 'sealed');
  if (file.numRecords !== undefined && written.numRecords + rows !== file.numRecords)
    throw new AppError('file_damaged', `${file.path} has not the rows that the log says`, {
      hint: "Run 'tributary lake check', and restore what it names from a backup.",
    });
  const add = toAdd(folder.toRelative(target), written, nowMs, true);
  return [removal, { add: file.young ? add : toWaiting(add, file.replaces ?? file.path) }];
}

async function takeOut(dependencies: UndoDependencies, loadId: string, { young, sealed }: Rooms): Promise<UndoneLoad> {
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
  const duckdb = await openDuckdb({ ...limits, tempDir: path.join(young.workDir, 'spill') });
  let rows: number;
  let actions: Action[];
  try {
    const hits = await findHits(duckdb, table, loadId);
    rows = hits.reduce((sum, hit) => sum + hit.rows, 0);
    actions = [];
    for (const [index, hit] of hits.entries()) {
      if (signal.aborted) throw new AppError('stopping', 'the undoing was stopped: nothing was changed');
      const folder = hit.file.young ? young : sealed;
      const room = await folder.makeRoom(String(index));
      actions.push(...(await writeWithout(duckdb, dependencies, hit, loadId, { folder, room })));
    }
  } finally {
    duckdb.close();
  }
  await young.sync();
  await sealed.sync();
  await crashPoint('undo-written');
  await table.commit(({ files, txns }, lake) => {
    if (!isSameLoadState(findLoadState(txns, loadId), state))
      throw new AppError('commit_conflict', `the load ${loadId} was made again meanwhile: nothing was changed`, {
        hint: "See 'tributary load list', then repeat the command.",
      });
    if (actions.some(({ remove }) => remove !== undefined && !files.has(remove.path)))
      throw new AppError('commit_conflict', 'the files of the load were changed meanwhile', {
        hint: 'Repeat the command.',
      });
    const nowMs = clock.nowMs();
    const others = [...listLoadStates(txns)].filter(([id, { status }]) => id !== loadId && status === 'loaded');
    return {
      cause: 'unload',
      actions: [
        { txn: toLoadTxn(loadId, { ...state, status: 'undone' }, nowMs) },
        ...others.map(([id, other]): Action => ({ txn: toLoadTxn(id, { ...other, status: 'review' }, nowMs) })),
        ...actions,
      ],
      // It brings no rows. But a flush that is on its way may hold one for a repeat of a row that goes: this tells it to
      // judge again, as after a load.
      availableAtMs: nextAvailableAtMs(clock, lake),
      totals: { stored: -rows, failed: -failedRows, erased: rows + failedRows },
      metrics: { load: loadId, rows, failed: failedRows },
    };
  });
  await crashPoint('undo-committed');
  await removeFailedRows(failedFolder, failedFiles, loadId);
  return { load: loadId, rows, failedRows };
}

/**
 * Takes the rows of a load out of its table. Can be repeated. Waits for whoever rewrites files of the table. Errors:
 * `not_found`, `locked`, `file_damaged` when a file that may have such rows is damaged, `disk`, `sql`, `stopping`.
 */
export async function undoLoad(dependencies: UndoDependencies, loadId: string): Promise<UndoneLoad> {
  const { table, lakeDir, crashPoint } = dependencies;
  const lock = await waitForLock(table.dir, 'the undoing of a load', lockWaitMs);
  try {
    await sweepLoadFolders(table);
    await table.refresh();
    const staging = path.join(lakePaths(lakeDir).staging, path.basename(table.dir));
    // An erasure that was killed may not have put the failed rows that it counted in their place.
    if (await exists(staging)) await recoverIntents(table, staging, crashPoint);
    const young = await openLoadFolder(table, 'the undoing of a load');
    try {
      const sealed = await openLoadFolder(table, 'the undoing of a load', unloadFolder);
      try {
        return await takeOut(dependencies, loadId, { young, sealed });
      } finally {
        await sealed.close();
      }
    } finally {
      await young.close();
    }
  } finally {
    lock.release();
  }
}
