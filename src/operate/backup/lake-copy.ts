import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { writeCheckpoint } from '../../lake/log/checkpoint.ts';
import { openDuckdb } from '../../lake/sql/duckdb.ts';
import { listFailedFilesAt } from '../../lake/files/failed-events.ts';
import { ensureLakeId, identityPath } from '../../lake/identity.ts';
import { recoverIntents } from '../../lake/files/staged-rewrite.ts';
import { lakePaths } from '../../lake/lake.ts';
import { findLakeState, type Epoch } from '../../lake/log/lake-state.ts';
import { commitName, listLog, logFolder, readCommit } from '../../lake/log/log-files.ts';
import { readSnapshot, type Snapshot } from '../../lake/log/snapshot.ts';
import { openTable, type Table } from '../../lake/log/table.ts';
import type { Clock } from '../../runtime/clock.ts';
import { noCrashPoint } from '../../runtime/crash-point.ts';
import { AppError, isAppError, isSystemError } from '../../runtime/errors.ts';
import { makeFolder } from '../../runtime/files/make-folder.ts';
import { acquireLock } from '../../runtime/files/lock.ts';
import { retry } from '../../runtime/async/retry.ts';
import type { BackupFolder } from './backup-folder.ts';
import type { BackupFile } from './backup-manifest.ts';

/**
 * The lake's part of a backup: one version of the table, with its files, and what lies beside it.
 *
 * The bulk is copied first, while everything goes on. The cut comes last, under the maintenance lock, so that nothing
 * but flushes changes the lake meanwhile: then only the files of the newest flushes and seals are left to copy. The log
 * of the backup is a checkpoint of that version, without the files that it no longer names, and the commit itself,
 * which carries the position in the stream and the totals.
 */
export interface LakeCopy {
  /** -1: there is no lake yet. */
  readonly version: number;
  readonly id: string | undefined;
  readonly epoch: Epoch | undefined;
  readonly files: readonly BackupFile[];
}

export interface LakeCopyOptions {
  readonly lakeDir: string;
  readonly clock: Clock;
  /** Hard links to the files of the table instead of copies, where that is possible. */
  readonly link: boolean;
  readonly signal: AbortSignal;
}

/** A copy of the whole lake takes its time, and flushes go on: the next rounds have ever less to copy. */
const rounds = 5;
/** A round that took less than this leaves little enough for the cut, milliseconds. */
const shortRoundMs = 5000;
/** A large seal or erasure takes minutes. */
const lockWaitMs = 900_000;
const cuts = 5;

function assertGoingOn(signal: AbortSignal): void {
  if (signal.aborted)
    throw new AppError('stopping', 'the backup was stopped', { hint: 'One that the folder held before is whole.' });
}

/** Path of a file of the lake in the data folder, as the manifest has it. */
function pathBelow(lakeDir: string, file: string): string {
  return path.posix.join('lake', path.relative(lakeDir, file).split(path.sep).join('/'));
}

/**
 * Copies the live files of a snapshot; those that are not there any more are left out, for a newer version may not name
 * them.
 */
async function copyLiveFiles(
  { files }: Snapshot,
  target: BackupFolder,
  { lakeDir, link, signal }: LakeCopyOptions,
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

/** Copies what the lake has now, so that little is left for the cut. */
export async function copyBulk(target: BackupFolder, options: LakeCopyOptions): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    const startedMs = performance.now();
    await copyLiveFiles(await readSnapshot(lakePaths(options.lakeDir).table), target, options);
    if (performance.now() - startedMs < shortRoundMs) return;
  }
}

/**
 * Copies the log: a checkpoint of the version, and the commits from the newest one of ours on. ENOENT when it was
 * trimmed meanwhile.
 */
async function copyLog(table: Table, target: BackupFolder, { lakeDir }: LakeCopyOptions): Promise<BackupFile[]> {
  const state = table.state();
  const folder = target.workPath('table');
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
    const { actions } = await readCommit(table.dir, version);
    isOurs = findLakeState(actions.find((action) => action.commitInfo !== undefined)?.commitInfo) !== undefined;
    sources.push(path.join(logFolder(table.dir), commitName(version)));
  }
  const files: BackupFile[] = [];
  for (const source of sources)
    files.push({
      path: pathBelow(lakeDir, path.join(logFolder(table.dir), path.basename(source))),
      ...(await target.put(source)),
    });
  return files;
}

/** Copies the first of some files that is there: one may be given its final name meanwhile. */
async function putFirst(
  target: BackupFolder,
  [file = '', ...others]: readonly string[],
): Promise<Awaited<ReturnType<BackupFolder['put']>>> {
  try {
    return await target.put(file);
  } catch (error) {
    if (others.length === 0 || !isSystemError(error, 'ENOENT')) throw error;
    return putFirst(target, others);
  }
}

async function listNames(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return [];
    throw error;
  }
}

/** Copies what lies beside the table: failed events as of the version, files put aside, the lake's id. */
async function copyBeside(table: Table, target: BackupFolder, { lakeDir }: LakeCopyOptions): Promise<BackupFile[]> {
  const paths = lakePaths(lakeDir);
  const files: BackupFile[] = [];
  for (const { files: candidates, name } of await listFailedFilesAt(paths.failed, table.dir, table.state().version)) {
    files.push({ path: pathBelow(lakeDir, path.join(paths.failed, name)), ...(await putFirst(target, candidates)) });
  }
  for (const name of await listNames(paths.orphans)) {
    const file = path.join(paths.orphans, name);
    files.push({ path: pathBelow(lakeDir, file), ...(await target.put(file)) });
  }
  for (const file of [table.snapshot().emptyFile, identityPath(lakeDir)])
    files.push({ path: pathBelow(lakeDir, file), ...(await target.put(file)) });
  return files;
}

async function copyVersion(table: Table, target: BackupFolder, options: LakeCopyOptions): Promise<LakeCopy> {
  const { copied, gone } = await copyLiveFiles(table.snapshot(), target, options);
  if (gone.length > 0)
    throw new AppError('file_damaged', `${gone[0]} is not there, and the lake's log names it`, {
      retryable: true,
      hint: "'tributary lake check' lists every missing file, and 'tributary lake repair' takes them out.",
    });
  const log = await copyLog(table, target, options);
  const beside = await copyBeside(table, target, options);
  return {
    version: table.state().version,
    id: await ensureLakeId(options.lakeDir),
    epoch: table.lake().epoch,
    files: [...copied, ...log, ...beside],
  };
}

/**
 * Copies the newest version of the lake. Waits for the maintenance lock, and finishes what a killed rewrite has left,
 * as every holder of the lock does. Errors: `locked`, `file_damaged` when a file of the lake is damaged or missing,
 * those of `openTable`.
 */
export async function copyLake(target: BackupFolder, options: LakeCopyOptions): Promise<LakeCopy> {
  const { lakeDir, clock, signal } = options;
  const paths = lakePaths(lakeDir);
  const { commits, checkpoints } = await listLog(paths.table);
  if (commits.length === 0 && checkpoints.length === 0)
    return { version: -1, id: undefined, epoch: undefined, files: [] };
  // What has no id yet is of a version before: the file is made here.
  await ensureLakeId(lakeDir);
  const lock = await retry(async () => acquireLock(paths.maintenanceLock, 'a backup'), {
    forMs: lockWaitMs,
    everyMs: 250,
    signal,
    retryable: (error) => isAppError(error, 'locked'),
  });
  try {
    assertGoingOn(signal);
    const table = await openTable(paths.table, { clock, crashPoint: noCrashPoint });
    if ((await listNames(paths.staging)).length > 0) await recoverIntents(table, paths.staging, noCrashPoint);
    for (let cut = 1; ; cut += 1) {
      await table.refresh();
      try {
        return await copyVersion(table, target, options);
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
