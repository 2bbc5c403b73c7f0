import path from 'node:path';
import { writeCheckpoint } from '../../lake/log/checkpoint.ts';
import { findLakeState, type Epoch, findStateOf } from '../../lake/log/lake-state.ts';
import { commitName, logFolder, readCommit, listLog, findCommit, tableStore } from '../../lake/log/log-files.ts';
import { loadTableState, toSnapshot, type Snapshot, readSnapshot } from '../../lake/log/snapshot.ts';
import type { TableState } from '../../lake/log/table-state.ts';
import { copyLedger, ledgerFile } from '../../lake/log/version-ledger.ts';
import { listUntrimmed } from '../../lake/log/version-points.ts';
import { openDuckdb } from '../../lake/sql/duckdb.ts';
import { noCrashPoint } from '../../runtime/crash-point.ts';
import { AppError, isSystemError, isAppError } from '../../runtime/errors.ts';
import { makeFolder } from '../../runtime/files/make-folder.ts';
import { removeTree } from '../../runtime/files/work-files.ts';
import { throwIfStopped, type BackupFolder } from './backup-folder.ts';
import type { BackupFile } from './backup-manifest.ts';
import { events } from '../../datasets/dataset.ts';
import { listFailedFilesAt, readFailedText, failedRowsFolder, listFailedRows } from '../../lake/files/failed-events.ts';
import { erasureListFile } from '../../lake/event-index/erasure-list.ts';
import { createErasedIdsSearch } from '../../lake/event-index/erased-ids.ts';
import { ensureLakeId, identityPath } from '../../lake/identity.ts';
import { recoverChanges } from '../../lake/files/change.ts';
import {
  lakePaths,
  listOtherTables,
  listQuarantined,
  listUnnamedTables,
  tablePaths,
  type TableName,
} from '../../lake/lake.ts';
import { openTable, type Table } from '../../lake/log/table.ts';
import type { Clock } from '../../runtime/clock.ts';
import { listNames } from '../../runtime/files/folder-names.ts';
import { acquireLock } from '../../runtime/files/lock.ts';
import { retry } from '../../runtime/async/retry.ts';

/** Options of the copy of one version of a table. Its log is a checkpoint, without tombstones. */
interface TableCopyOptions {
  readonly lakeDir: string;
  /** Uses hard links instead of copies where possible. */
  readonly link: boolean;
  readonly signal: AbortSignal;
}

function pathBelow(lakeDir: string, file: string): string {
  return path.posix.join('lake', path.relative(lakeDir, file).split(path.sep).join('/'));
}

/** Copies the live files of a snapshot. Missing ones are left out: a newer version may not name them. */
async function copyLiveFiles(
  { files }: Snapshot,
  target: BackupFolder,
  { lakeDir, link, signal }: TableCopyOptions,
): Promise<{ copied: BackupFile[]; missing: string[] }> {
  const copied: BackupFile[] = [];
  const missing: string[] = [];
  for (const { absolutePath, sha256, sizeBytes } of files) {
    throwIfStopped(signal);
    try {
      const expected = sha256 === undefined ? undefined : { sha256, size: sizeBytes };
      copied.push(await target.put(pathBelow(lakeDir, absolutePath), absolutePath, expected, link));
    } catch (error) {
      if (!isSystemError(error, 'ENOENT')) throw error;
      missing.push(absolutePath);
    }
  }
  return { copied, missing };
}

/** Copies a checkpoint of the version, and the commits from this service's newest one on. Error: ENOENT if trimmed. */
async function copyLog(
  tableDir: string,
  state: Readonly<TableState>,
  target: BackupFolder,
  { lakeDir }: TableCopyOptions,
): Promise<BackupFile[]> {
  const folder = target.workPath(path.basename(tableDir));
  // Leftovers of an earlier version, which disappeared before it was copied.
  await removeTree(folder);
  await makeFolder(logFolder(folder));
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  try {
    // Removed files are not in the backup, so older versions cannot be read.
    await writeCheckpoint(duckdb, folder, { ...state, tombstones: new Map() }, noCrashPoint);
  } finally {
    duckdb.close();
  }
  const sources = (await listNames(logFolder(folder))).map((name) => path.join(logFolder(folder), name));
  for (let { version } = state, isOurs = false; !isOurs && version >= 0; version -= 1) {
    const { actions } = await readCommit(tableDir, version);
    isOurs = findStateOf(actions) !== undefined;
    sources.push(path.join(logFolder(tableDir), commitName(version)));
  }
  const files: BackupFile[] = [];
  for (const source of sources)
    files.push(await target.put(pathBelow(lakeDir, path.join(logFolder(tableDir), path.basename(source))), source));
  return files;
}

/** Copies the cursors of versions: the ledger, the commits that the backup lacks, and the steps of clock repairs. */
async function copyPoints(
  tableDir: string,
  state: Readonly<TableState>,
  target: BackupFolder,
  { lakeDir }: TableCopyOptions,
): Promise<BackupFile[]> {
  const folder = target.workPath(path.basename(tableDir));
  // The log may be trimmed in between, and the original ledger then has some of these lines.
  await copyLedger(tableStore(tableDir), folder, await listUntrimmed(tableDir, state.version));
  const files = [await target.put(pathBelow(lakeDir, ledgerFile(tableDir)), ledgerFile(folder))];
  const lake = findLakeState(state.lastCommit);
  const list = lake === undefined ? undefined : erasureListFile(tableDir, lake);
  if (list !== undefined) files.push(await target.put(pathBelow(lakeDir, list.absolutePath), list.absolutePath));
  for (const { steps } of lake?.restamps ?? []) {
    if (steps === undefined) continue;
    const file = path.join(tableDir, steps);
    files.push(await target.put(pathBelow(lakeDir, file), file));
  }
  return files;
}

/** Limit of the rows of a copied table, as a position in the stream. */
interface PositionBound {
  readonly appId: string;
  /** Last sequence whose message the backup has. */
  readonly sequence: number;
}

/**
 * Loads the newest version of a table without rows of messages after the bound: secondary tables are committed before
 * the events' position advances. Error: `commit_conflict` if the log no longer has the commits to decide.
 */
async function loadWithin(
  tableDir: string,
  state: Readonly<TableState>,
  { appId, sequence }: PositionBound,
): Promise<Readonly<TableState>> {
  if ((state.txns.get(appId) ?? 0) <= sequence) return state;
  let beyond = state.version + 1;
  for (let version = state.version; version >= 0; version -= 1) {
    const commit = await findCommit(tableDir, version);
    if (commit === undefined)
      throw new AppError('commit_conflict', `the log of ${tableDir} was trimmed while it was copied`, {
        hint: 'Run the backup again.',
      });
    const position = commit.actions.find(({ txn }) => txn?.appId === appId)?.txn?.version;
    if (position === undefined) continue;
    if (position <= sequence) break;
    beyond = version;
  }
  return await loadTableState(tableDir, beyond - 1);
}

/**
 * Copies a version of a table. Errors: `file_damaged`, retryable if a file is missing; ENOENT if its log is trimmed.
 */
async function copyTable(
  tableDir: string,
  state: Readonly<TableState>,
  target: BackupFolder,
  options: TableCopyOptions,
): Promise<BackupFile[]> {
  const snapshot = toSnapshot(tableDir, state);
  const { copied, missing } = await copyLiveFiles(snapshot, target, options);
  if (missing.length > 0)
    throw new AppError('file_damaged', `${missing[0]} is missing, but the lake's log names it`, {
      retryable: true,
      hint: "Run 'tributary lake check' to list every missing file, and 'tributary lake repair' to remove them from the log.",
    });
  const log = await copyLog(tableDir, state, target, options);
  const empty = await target.put(pathBelow(options.lakeDir, snapshot.emptyFile), snapshot.emptyFile);
  const points = await copyPoints(tableDir, state, target, options);
  return [...copied, ...log, ...points, empty];
}

/**
 * The lake's part of a backup: one version of each table with its files, and the files next to the tables.
 *
 * Most files are copied first, while the service runs. The cut comes last, under the maintenance lock of the table, so
 * that only flushes and loads change it meanwhile: then few new files are left to copy. The log of the backup is a
 * checkpoint of that version, without removed files, and the commit itself, which has the position in the stream and
 * the totals. The events come first: a secondary table has the rows of a message before the position of the events
 * passes it, so it is copied as far as the backup has the stream, and is never behind.
 */
export interface LakeCopy {
  /** Version of the events table; -1 without a lake. */
  readonly version: number;
  readonly id: string | undefined;
  readonly epoch: Epoch | undefined;
  readonly files: readonly BackupFile[];
}

export interface LakeCopyOptions extends TableCopyOptions {
  readonly clock: Clock;
}

/** Maximum number of rounds: flushes continue during a copy, and each round has less to copy. */
const rounds = 5;
/** A shorter round leaves little enough for the cut, ms. */
const shortRoundMs = 5000;
/** Longest wait for a maintenance lock, ms: a large seal or erasure takes minutes. */
const lockWaitMs = 900_000;
const maxAttempts = 5;

/** Lists all secondary tables, also those that no pipeline names. */
export async function listSecondaryTables(lakeDir: string): Promise<TableName[]> {
  return [...(await listOtherTables(lakeDir)), ...(await listUnnamedTables(lakeDir))];
}

export async function copyBulk(target: BackupFolder, options: LakeCopyOptions): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    const startedMs = performance.now();
    for (const dataset of [events, ...(await listSecondaryTables(options.lakeDir))])
      await copyLiveFiles(await readSnapshot(tablePaths(options.lakeDir, dataset).table), target, options);
    if (performance.now() - startedMs < shortRoundMs) return;
  }
}

/**
 * Copies the first existing path of failed events, which may be renamed meanwhile. Keeps an intact copy of a damaged
 * file.
 */
async function putFirst(
  target: BackupFolder,
  backupPath: string,
  [file = '', ...others]: readonly string[],
): Promise<BackupFile> {
  try {
    await readFailedText(file);
    return await target.put(backupPath, file);
  } catch (error) {
    if (others.length === 0 || !isSystemError(error, 'ENOENT')) throw error;
    return putFirst(target, backupPath, others);
  }
}

/** Copies files next to the tables: failed events, quarantined files, hashes of erased ids, the lake's id. */
async function copyOtherFiles(table: Table, target: BackupFolder, { lakeDir }: LakeCopyOptions): Promise<BackupFile[]> {
  const paths = lakePaths(lakeDir);
  const files: BackupFile[] = [];
  for (const { files: candidates, name } of await listFailedFilesAt(paths.failed, table.dir, table.state().version)) {
    files.push(await putFirst(target, pathBelow(lakeDir, path.join(paths.failed, name)), candidates));
  }
  for (const file of await listQuarantined(lakeDir)) files.push(await target.put(pathBelow(lakeDir, file), file));
  if ((await createErasedIdsSearch(paths)()).file !== undefined)
    files.push(await target.put(pathBelow(lakeDir, paths.erasedIds), paths.erasedIds));
  const id = identityPath(lakeDir);
  return [...files, await target.put(pathBelow(lakeDir, id), id)];
}

/**
 * Runs a copy of a table's newest version under its maintenance lock; repeats it if the version disappears. First
 * settles what a killed rewrite left.
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
    throwIfStopped(signal);
    const table = await openTable(paths.table, { clock, crashPoint: noCrashPoint });
    await recoverChanges(table, paths.staging);
    for (let attempt = 1; ; attempt += 1) {
      await table.refresh();
      try {
        return await copy(table);
      } catch (error) {
        // Trimmed, removed or replaced since the version was read: the newest one has the current files.
        const passing = isSystemError(error, 'ENOENT') || (isAppError(error, 'file_damaged') && error.retryable);
        if (!passing || attempt === maxAttempts || signal.aborted) throw error;
      }
    }
  } finally {
    lock.release();
  }
}

/**
 * Copies the newest version of the events table, and the files next to the tables. Waits for the maintenance lock.
 * Errors: `locked`, `file_damaged` if a file is damaged or missing, those of `openTable`.
 */
export async function copyLake(target: BackupFolder, options: LakeCopyOptions): Promise<LakeCopy> {
  const { lakeDir } = options;
  const { commits, checkpoints } = await listLog(lakePaths(lakeDir).table);
  if (commits.length === 0 && checkpoints.length === 0)
    return { version: -1, id: undefined, epoch: undefined, files: [] };
  // A lake of an earlier version may have no file of its id.
  await ensureLakeId(lakeDir);
  return await cutTable(events, options, async (table) => {
    const copied = await copyTable(table.dir, table.state(), target, options);
    const otherFiles = await copyOtherFiles(table, target, options);
    return {
      version: table.state().version,
      id: await ensureLakeId(lakeDir),
      epoch: table.lake().epoch,
      files: [...copied, ...otherFiles],
    };
  });
}

/** Copies the failed rows of a version's loads. Called under the maintenance lock, as every change of them. */
async function copyFailedRows(
  tableDir: string,
  { txns }: Readonly<TableState>,
  target: BackupFolder,
  { lakeDir }: LakeCopyOptions,
): Promise<BackupFile[]> {
  const { files } = await listFailedRows(failedRowsFolder(lakePaths(lakeDir).failed, tableDir), txns);
  const copied: BackupFile[] = [];
  for (const file of files) copied.push(await putFirst(target, pathBelow(lakeDir, file), [file]));
  return copied;
}

/**
 * Copies the secondary tables with their failed rows, each in its newest version up to the bound. Errors: those of
 * `copyLake`; `commit_conflict` if that version cannot be determined.
 */
export async function copySecondaryTables(
  target: BackupFolder,
  bound: PositionBound | undefined,
  options: LakeCopyOptions,
): Promise<BackupFile[]> {
  const files: BackupFile[] = [];
  for (const dataset of await listSecondaryTables(options.lakeDir))
    files.push(
      ...(await cutTable(dataset, options, async (table) => {
        const state = bound === undefined ? table.state() : await loadWithin(table.dir, table.state(), bound);
        const copied = await copyTable(table.dir, state, target, options);
        return [...copied, ...(await copyFailedRows(table.dir, state, target, options))];
      })),
    );
  return files;
}
