import path from 'node:path';
import { events } from '../../datasets/dataset.ts';
import { listFailedFilesAt, readFailedText } from '../../lake/files/failed-events.ts';
import { failedRowsFolder, listFailedRows } from '../../lake/files/failed-rows.ts';
import { createErasedIdsSearch } from '../../lake/find/erased-ids.ts';
import { ensureLakeId, identityPath } from '../../lake/identity.ts';
import { listStaged, recoverIntents } from '../../lake/files/staged-rewrite.ts';
import { lakePaths, listOtherTables, listUnnamedTables, tablePaths, type TableName } from '../../lake/lake.ts';
import type { Epoch } from '../../lake/log/lake-state.ts';
import { listLog } from '../../lake/log/log-files.ts';
import { readSnapshot } from '../../lake/log/snapshot.ts';
import { openTable, type Table } from '../../lake/log/table.ts';
import type { TableState } from '../../lake/log/table-state.ts';
import type { Clock } from '../../runtime/clock.ts';
import { noCrashPoint } from '../../runtime/crash-point.ts';
import { isAppError, isSystemError } from '../../runtime/errors.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { acquireLock } from '../../runtime/files/lock.ts';
import { retry } from '../../runtime/async/retry.ts';
import type { BackupFolder } from './backup-folder.ts';
import type { BackupFile } from './backup-manifest.ts';
import {
  assertGoingOn,
  copyLiveFiles,
  copyTable,
  loadWithin,
  pathBelow,
  type PositionBound,
  type TableCopyOptions,
} from './table-copy.ts';

/**
 * The lake's part of a backup: one version of each table, with its files, and what lies beside them.
 *
 * The bulk is copied first, while everything goes on. The cut comes last, under the maintenance lock of the table that
 * is copied, so that nothing but flushes and loads changes it meanwhile: then only the files of the newest of them are
 * left to copy. The log of the backup is a checkpoint of that version, without the files that it no longer names, and
 * the commit itself, which carries the position in the stream and the totals. The events come first: another table has
 * the rows of a message before the position of the events passes it, so it is copied as far as the backup has the
 * stream, and is never behind.
 */
export interface LakeCopy {
  /** Version of the table of the events; -1: there is no lake yet. */
  readonly version: number;
  readonly id: string | undefined;
  readonly epoch: Epoch | undefined;
  readonly files: readonly BackupFile[];
}

export interface LakeCopyOptions extends TableCopyOptions {
  readonly clock: Clock;
}

/** A copy of the whole lake takes its time, and flushes go on: the next rounds have ever less to copy. */
const rounds = 5;
/** A round that took less than this leaves little enough for the cut, milliseconds. */
const shortRoundMs = 5000;
/** A large seal or erasure takes minutes. */
const lockWaitMs = 900_000;
const cuts = 5;

/** Lists every table but that of the events: what no pipeline names is in the backup all the same. */
async function listFollowers(lakeDir: string): Promise<TableName[]> {
  return [...(await listOtherTables(lakeDir)), ...(await listUnnamedTables(lakeDir))];
}

/** Copies what the lake has now, so that little is left for the cut. */
export async function copyBulk(target: BackupFolder, options: LakeCopyOptions): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    const startedMs = performance.now();
    for (const dataset of [events, ...(await listFollowers(options.lakeDir))])
      await copyLiveFiles(await readSnapshot(tablePaths(options.lakeDir, dataset).table), target, options);
    if (performance.now() - startedMs < shortRoundMs) return;
  }
}

/**
 * Copies the first of some files of failed events that is there: one may be given its final name meanwhile. A damaged one
 * must not take the place of what an earlier backup has.
 */
async function putFirst(
  target: BackupFolder,
  [file = '', ...others]: readonly string[],
): Promise<Awaited<ReturnType<BackupFolder['put']>>> {
  try {
    await readFailedText(file);
    return await target.put(file);
  } catch (error) {
    if (others.length === 0 || !isSystemError(error, 'ENOENT')) throw error;
    return putFirst(target, others);
  }
}

/** Copies what lies beside the tables: failed events as of the version, files put aside, the hashes of erased ids, the lake's id. */
async function copyBeside(table: Table, target: BackupFolder, { lakeDir }: LakeCopyOptions): Promise<BackupFile[]> {
  const paths = lakePaths(lakeDir);
  const files: BackupFile[] = [];
  for (const { files: candidates, name } of await listFailedFilesAt(paths.failed, table.dir, table.state().version)) {
    files.push({ path: pathBelow(lakeDir, path.join(paths.failed, name)), ...(await putFirst(target, candidates)) });
  }
  for (const name of await findNames(paths.orphans)) {
    const file = path.join(paths.orphans, name);
    files.push({ path: pathBelow(lakeDir, file), ...(await target.put(file)) });
  }
  if ((await createErasedIdsSearch(paths)()).file !== undefined)
    files.push({ path: pathBelow(lakeDir, paths.erasedIds), ...(await target.put(paths.erasedIds)) });
  const id = identityPath(lakeDir);
  return [...files, { path: pathBelow(lakeDir, id), ...(await target.put(id)) }];
}

/**
 * Runs a copy of a table's newest version under its maintenance lock, again where the version is gone by then; finishes
 * what a killed rewrite has left first, as every holder of the lock does.
 */
async function cutTable<T>(
  dataset: TableName,
  { lakeDir, clock, signal }: LakeCopyOptions,
  copy: (table: Table) => Promise<T>,
): Promise<T> {
  const paths = tablePaths(lakeDir, dataset);
  const lock = await retry(async () => acquireLock(paths.maintenanceLock, 'a backup'), {
    forMs: lockWaitMs,
    everyMs: 250,
    signal,
    retryable: (error) => isAppError(error, 'locked'),
  });
  try {
    assertGoingOn(signal);
    const table = await openTable(paths.table, { clock, crashPoint: noCrashPoint });
    if ((await exists(paths.staging)) && (await listStaged(paths.staging)).length > 0)
      await recoverIntents(table, paths.staging, noCrashPoint);
    for (let cut = 1; ; cut += 1) {
      await table.refresh();
      try {
        return await copy(table);
      } catch (error) {
        // Trimmed, swept or replaced since the version was read: the newest one names what there is.
        const passing = isSystemError(error, 'ENOENT') || (isAppError(error, 'file_damaged') && error.retryable);
        if (!passing || cut === cuts || signal.aborted) throw error;
      }
    }
  } finally {
    lock.release();
  }
}

/**
 * Copies the newest version of the table of the events, and what lies beside the tables. Waits for the maintenance lock.
 * Errors: `locked`, `file_damaged` when a file of the lake is damaged or missing, those of `openTable`.
 */
export async function copyLake(target: BackupFolder, options: LakeCopyOptions): Promise<LakeCopy> {
  const { lakeDir } = options;
  const { commits, checkpoints } = await listLog(lakePaths(lakeDir).table);
  if (commits.length === 0 && checkpoints.length === 0)
    return { version: -1, id: undefined, epoch: undefined, files: [] };
  // What has no id yet is of a version before: the file is made here.
  await ensureLakeId(lakeDir);
  return await cutTable(events, options, async (table) => {
    const copied = await copyTable(table.dir, table.state(), target, options);
    const beside = await copyBeside(table, target, options);
    return {
      version: table.state().version,
      id: await ensureLakeId(lakeDir),
      epoch: table.lake().epoch,
      files: [...copied, ...beside],
    };
  });
}

/**
 * Copies the bad rows of the loads that a version of a table has. Under the maintenance lock: who rewrites or removes
 * such a file, once its load is in the log, holds it.
 */
async function copyFailedRows(
  tableDir: string,
  { txns }: Readonly<TableState>,
  target: BackupFolder,
  { lakeDir }: LakeCopyOptions,
): Promise<BackupFile[]> {
  const { files } = await listFailedRows(failedRowsFolder(lakePaths(lakeDir).failed, tableDir), txns);
  const copied: BackupFile[] = [];
  for (const file of files) copied.push({ path: pathBelow(lakeDir, file), ...(await putFirst(target, [file])) });
  return copied;
}

/**
 * Copies the other tables, with their failed rows, after the events: of each the newest version that reaches no further
 * in the stream than the bound. Errors: those of `copyLake`; `commit_conflict` where it cannot be told which version that is.
 */
export async function copyFollowers(
  target: BackupFolder,
  bound: PositionBound | undefined,
  options: LakeCopyOptions,
): Promise<BackupFile[]> {
  const files: BackupFile[] = [];
  for (const dataset of await listFollowers(options.lakeDir))
    files.push(
      ...(await cutTable(dataset, options, async (table) => {
        const state = bound === undefined ? table.state() : await loadWithin(table.dir, table.state(), bound);
        const copied = await copyTable(table.dir, state, target, options);
        return [...copied, ...(await copyFailedRows(table.dir, state, target, options))];
      })),
    );
  return files;
}
