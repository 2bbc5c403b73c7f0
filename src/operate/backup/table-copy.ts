import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { writeCheckpoint } from '../../lake/log/checkpoint.ts';
import { findLakeState } from '../../lake/log/lake-state.ts';
import { commitName, logFolder, readCommit } from '../../lake/log/log-files.ts';
import { loadTableState, toSnapshot, type Snapshot } from '../../lake/log/snapshot.ts';
import type { TableState } from '../../lake/log/table-state.ts';
import { copyLedger, ledgerFile } from '../../lake/log/version-ledger.ts';
import { listUntrimmed } from '../../lake/log/version-points.ts';
import { openDuckdb } from '../../lake/sql/duckdb.ts';
import { noCrashPoint } from '../../runtime/crash-point.ts';
import { AppError, isSystemError } from '../../runtime/errors.ts';
import { makeFolder } from '../../runtime/files/make-folder.ts';
import { removeTree } from '../../runtime/files/work-files.ts';
import type { BackupFolder } from './backup-folder.ts';
import type { BackupFile } from './backup-manifest.ts';

/** The copy of one version of a table. Its log is a checkpoint, without the files that the version no longer names. */
export interface TableCopyOptions {
  readonly lakeDir: string;
  /** Hard links to the files of the table instead of copies, where that is possible. */
  readonly link: boolean;
  readonly signal: AbortSignal;
}

/** Throws `stopping` once the backup is to end. */
export function assertGoingOn(signal: AbortSignal): void {
  if (signal.aborted)
    throw new AppError('stopping', 'the backup was stopped', { hint: 'One that the folder held before is whole.' });
}

/** Path of a file of the lake in the data folder, as the manifest has it. */
export function pathBelow(lakeDir: string, file: string): string {
  return path.posix.join('lake', path.relative(lakeDir, file).split(path.sep).join('/'));
}

/**
 * Copies the live files of a snapshot; those that are not there any more are left out, for a newer version may not name
 * them.
 */
export async function copyLiveFiles(
  { files }: Snapshot,
  target: BackupFolder,
  { lakeDir, link, signal }: TableCopyOptions,
): Promise<{ copied: BackupFile[]; gone: string[] }> {
  const copied: BackupFile[] = [];
  const gone: string[] = [];
  for (const { absolutePath, sha256, sizeBytes } of files) {
    assertGoingOn(signal);
    try {
      const stored = await target.put(
        absolutePath,
        sha256 === undefined ? undefined : { sha256, size: sizeBytes },
        link,
      );
      copied.push({ path: pathBelow(lakeDir, absolutePath), ...stored });
    } catch (error) {
      if (!isSystemError(error, 'ENOENT')) throw error;
      gone.push(absolutePath);
    }
  }
  return { copied, gone };
}

/** Copies `source` into the backup, as the lake's file `file`. */
async function putAs(file: string, source: string, target: BackupFolder, lakeDir: string): Promise<BackupFile> {
  return { path: pathBelow(lakeDir, file), ...(await target.put(source)) };
}

/**
 * Copies the log: a checkpoint of the version, and the commits from the newest one of ours on. ENOENT when it was
 * trimmed meanwhile.
 */
async function copyLog(
  tableDir: string,
  state: Readonly<TableState>,
  target: BackupFolder,
  { lakeDir }: TableCopyOptions,
): Promise<BackupFile[]> {
  const folder = target.workPath(path.basename(tableDir));
  // That of a version before, which was gone before it was copied.
  await removeTree(folder);
  await makeFolder(logFolder(folder));
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  try {
    // Files that the version no longer names are not in the backup, so nobody can travel to where they were.
    await writeCheckpoint(duckdb, folder, { ...state, tombstones: new Map() }, noCrashPoint);
  } finally {
    duckdb.close();
  }
  const sources = (await readdir(logFolder(folder))).map((name) => path.join(logFolder(folder), name));
  for (let { version } = state, isOurs = false; !isOurs && version >= 0; version -= 1) {
    const { actions } = await readCommit(tableDir, version);
    isOurs = findLakeState(actions.find((action) => action.commitInfo !== undefined)?.commitInfo) !== undefined;
    sources.push(path.join(logFolder(tableDir), commitName(version)));
  }
  const files: BackupFile[] = [];
  for (const source of sources)
    files.push(await putAs(path.join(logFolder(tableDir), path.basename(source)), source, target, lakeDir));
  return files;
}

/**
 * Copies what tells where versions stand in the order of rows: the ledger, with the commits that the backup leaves out,
 * and what repairs of the clock have changed.
 */
async function copyPoints(
  tableDir: string,
  state: Readonly<TableState>,
  target: BackupFolder,
  { lakeDir }: TableCopyOptions,
): Promise<BackupFile[]> {
  const folder = target.workPath(path.basename(tableDir));
  // The log may be trimmed in between, and the original then has some of the lines itself.
  await copyLedger(tableDir, folder, await listUntrimmed(tableDir, state.version));
  const files = [await putAs(ledgerFile(tableDir), ledgerFile(folder), target, lakeDir)];
  for (const { steps } of findLakeState(state.lastCommit)?.restamps ?? []) {
    if (steps === undefined) continue;
    const file = path.join(tableDir, steps);
    files.push(await putAs(file, file, target, lakeDir));
  }
  return files;
}

/** How far in the stream the rows of a copied table may reach. */
export interface PositionBound {
  /** Identity of the txn action that carries the position. */
  readonly appId: string;
  /** Last sequence that the backup has the message of. */
  readonly sequence: number;
}

/**
 * The newest version of a table whose rows come from no message after the bound: a table that follows the events is
 * committed before their position moves on, and so may be ahead of what the backup has of the stream. Errors:
 * `commit_conflict` where the log no longer has the commits to tell it by.
 */
export async function loadWithin(
  tableDir: string,
  state: Readonly<TableState>,
  { appId, sequence }: PositionBound,
): Promise<Readonly<TableState>> {
  if ((state.txns.get(appId) ?? 0) <= sequence) return state;
  let beyond = state.version + 1;
  for (let version = state.version; version >= 0; version -= 1) {
    const { actions } = await readCommit(tableDir, version).catch((error: unknown) => {
      if (!isSystemError(error, 'ENOENT')) throw error;
      throw new AppError('commit_conflict', `the log of ${tableDir} was trimmed while it was copied`, {
        hint: 'Repeat the backup.',
      });
    });
    const position = actions.find(({ txn }) => txn?.appId === appId)?.txn?.version;
    if (position === undefined) continue;
    if (position <= sequence) break;
    beyond = version;
  }
  return await loadTableState(tableDir, beyond - 1);
}

/**
 * Copies a version of a table: its live files, its log, the empty file. Errors: `file_damaged`, retryable where a file
 * is missing; ENOENT where an entry of the log was trimmed meanwhile.
 */
export async function copyTable(
  tableDir: string,
  state: Readonly<TableState>,
  target: BackupFolder,
  options: TableCopyOptions,
): Promise<BackupFile[]> {
  const snapshot = toSnapshot(tableDir, state);
  const { copied, gone } = await copyLiveFiles(snapshot, target, options);
  if (gone.length > 0)
    throw new AppError('file_damaged', `${gone[0]} is not there, and the lake's log names it`, {
      retryable: true,
      hint: "'tributary lake check' lists every missing file, and 'tributary lake repair' takes them out.",
    });
  const log = await copyLog(tableDir, state, target, options);
  const empty = { path: pathBelow(options.lakeDir, snapshot.emptyFile), ...(await target.put(snapshot.emptyFile)) };
  const points = await copyPoints(tableDir, state, target, options);
  return [...copied, ...log, ...points, empty];
}
