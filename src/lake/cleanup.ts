import path from 'node:path';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { decodePath, findInfo } from './log/actions.ts';
import { findLastCheckpoint, writeCheckpoint } from './log/checkpoint.ts';
import { isClockBehind, findLakeState } from './log/lake-state.ts';
import type { Duckdb } from './sql/duckdb.ts';
import { lakeStore } from './files/data-file.ts';
import { findOldestPendingBase } from './files/failed-events.ts';
import {
  checkpointHashName,
  checkpointName,
  commitName,
  listLog,
  logFolder,
  readCommit,
  logStore,
  tableStore,
} from './log/log-files.ts';
import { findPublished } from './files/deferred-replacement.ts';
import { createPendingFolders } from './files/merged-folders.ts';
import { findNamesInProgress } from './files/staging.ts';
import type { Table } from './log/table.ts';
import { recordVersions } from './log/version-points.ts';
import { copyTableState } from './log/table-state.ts';
import {
  listFormerPaths,
  listKnownPaths,
  listYoungPaths,
  publishedPathOf,
  removeFormerFolders,
  youngFolders,
} from './log/young-folder.ts';

export const cleanSteps = ['vacuumed', 'versions-recorded', 'trimmed', 'swept'] as const;

/** Commits between checkpoints of a small table. */
export const checkpointEvery = 100;
/** Age at which a checkpoint of a small table is replaced after any commit, ms. */
const checkpointMaxAgeMs = 600_000;
/**
 * A checkpoint has a row per live file, so a large table has fewer. Its writing takes up to 0.05 ms per file on a busy
 * machine: a hundredth of the time in between.
 */
const filesPerCommit = 1000;
const ageMsPerFile = 5;

export interface CheckpointAge {
  /** Commits since the newest checkpoint. */
  readonly commits: number;
  /** Since it was written or first seen, ms. */
  readonly ageMs: number;
  readonly liveFiles: number;
}

/** Reports whether enough commits, or enough time and a commit, require a checkpoint. `every`: commits, at least. */
export function isCheckpointDue({ commits, ageMs, liveFiles }: CheckpointAge, every = checkpointEvery): boolean {
  if (commits >= Math.max(every, liveFiles / filesPerCommit)) return true;
  return commits > 0 && ageMs >= Math.max(checkpointMaxAgeMs, liveFiles * ageMsPerFile);
}

export interface CleanOptions {
  readonly nowMs: number;
  readonly retentionMs: number;
  readonly crashPoint: CrashPoint;
}

/** Returns the version before which an erasure removes the history now, if readers have no time left. */
function findForgotten(table: Table, nowMs: number): number | undefined {
  const { forgetBefore, forgetAtMs = 0 } = table.lake();
  return nowMs >= forgetAtMs ? forgetBefore : undefined;
}

/** Reports whether an erasure waits for the removal of history with erased rows, and whether regardless of readers. */
export async function mustDropErasedHistory(table: Table, nowMs: number): Promise<'no' | 'now' | 'in time'> {
  const forgetBefore = findForgotten(table, nowMs);
  if (forgetBefore === undefined) return 'no';
  const { commits } = await listLog(table.dir);
  if ((commits[0] ?? forgetBefore) >= forgetBefore) return 'no';
  return table.lake().forgetAtMs === undefined ? 'now' : 'in time';
}

/** Removes files that were removed before the retention, with their tombstones. Returns their number. */
export async function vacuum(table: Table, options: CleanOptions): Promise<number> {
  const { tombstones } = table.state();
  const byPublishedPath = new Map(table.snapshot().files.map((file) => [file.publishedPath, file]));
  const isPending = createPendingFolders(table);
  const emptied = new Set<string>();
  const stale: string[] = [];
  const removed: string[] = [];
  for (const [encoded, remove] of tombstones) {
    const age = options.nowMs - (typeof remove.deletionTimestamp === 'number' ? remove.deletionTimestamp : 0);
    if (age < options.retentionMs) continue;
    const file = decodePath(encoded);
    const publishedPath = file === undefined ? undefined : publishedPathOf(file);
    // Readers of the glob have the files that a merge replaces until its folder is exchanged.
    if (publishedPath !== undefined && (await isPending(path.posix.dirname(publishedPath)))) continue;
    const successor = publishedPath === undefined ? undefined : byPublishedPath.get(publishedPath);
    // Readers of the glob have a sealed file of an earlier version until its rewrite replaces it.
    if (publishedPath === file && successor !== undefined && (await findPublished(table.dir, successor)) !== 'itself')
      continue;
    if (file !== undefined && (publishedPath !== file || successor === undefined)) stale.push(file);
    if (publishedPath !== undefined && successor === undefined) emptied.add(publishedPath);
    removed.push(encoded);
  }
  const store = tableStore(table.dir);
  await store.remove(stale);
  // The commits name them until they are trimmed. Removing a missing file costs nothing.
  for (const encoded of removed) tombstones.delete(encoded);
  if (emptied.size > 0) {
    const knownPaths = listKnownPaths([], tombstones.keys());
    await store.remove([...emptied].filter((publishedPath) => !knownPaths.has(publishedPath)));
  }
  await options.crashPoint('vacuumed');
  return removed.length;
}

/**
 * Writes a checkpoint if `isCheckpointDue`, or if history must be removed. `ageMs`: age of the newest one. Returns the
 * version of the newest one.
 */
export async function checkpointWhenDue(
  duckdb: Duckdb,
  table: Table,
  crashPoint: CrashPoint,
  every = checkpointEvery,
  ageMs = 0,
): Promise<number> {
  const { checkpoints } = await listLog(table.dir);
  const { version, files } = table.state();
  const last = checkpoints.at(-1) ?? 0;
  // After a crash, `_last_checkpoint` may be outdated, and other engines would look for a trimmed checkpoint.
  const isHinted = (await findLastCheckpoint(table.dir))?.version === last;
  const isDue = isCheckpointDue({ commits: version - last, ageMs, liveFiles: files.size }, every);
  if (isHinted && !isDue && last >= (table.lake().forgetBefore ?? 0)) return last;
  const state = copyTableState(table.state());
  await writeCheckpoint(duckdb, table.dir, state, crashPoint);
  return state.version;
}

/** Returns when this service committed a version, Unix ms; undefined for a foreign commit. */
async function findCommittedAtMs(tableDir: string, version: number): Promise<number | undefined> {
  const info = findInfo((await readCommit(tableDir, version)).actions);
  return findLakeState(info) === undefined ? undefined : info?.timestamp;
}

/** Returns the newest commit of this service up to a version: a checkpoint's provenance. */
async function findOwnVersion(tableDir: string, version: number, commits: readonly number[]): Promise<number> {
  for (let own = version; commits.includes(own); own -= 1) {
    if ((await findCommittedAtMs(tableDir, own)) !== undefined) return own;
  }
  return version;
}

/**
 * Deletes commits and checkpoints that no reader within the retention starts from, and those with erased rows. Keeps
 * this service's newest commit up to the checkpoint for its provenance. `failedDir`: failed events that this log
 * locates. Only for the one compactor: another writer would reuse the freed versions. Returns the number of removed
 * files.
 */
export async function trimLog(table: Table, failedDir: string | undefined, options: CleanOptions): Promise<number> {
  const { commits, checkpoints } = await listLog(table.dir);
  const needed = failedDir === undefined ? Infinity : await findOldestPendingBase(failedDir);
  const forgetBefore = findForgotten(table, options.nowMs);
  const forgetFrom = checkpoints.find((version) => version >= (forgetBefore ?? Infinity));
  let keepFrom = forgetFrom !== undefined && forgetFrom <= needed ? forgetFrom : 0;
  for (const version of checkpoints) {
    if (version <= keepFrom || version > needed || !commits.includes(version)) continue;
    const committedAtMs = await findCommittedAtMs(table.dir, version);
    // A time in the future is wrong: later commits show the least age of this one.
    if (committedAtMs === undefined || isClockBehind(committedAtMs, options.nowMs)) continue;
    if (options.nowMs - committedAtMs < options.retentionMs) break;
    keepFrom = version;
  }
  const keepCommitsFrom = await findOwnVersion(table.dir, keepFrom, commits);
  const staleCommits = commits.filter((version) => version < keepCommitsFrom);
  await recordVersions(table.dir, staleCommits);
  await options.crashPoint('versions-recorded');
  const stale = [
    ...staleCommits.map(commitName),
    ...checkpoints
      .filter((version) => version < keepFrom)
      .flatMap((version) => [checkpointName(version), checkpointHashName(version)]),
  ];
  // Oldest first: a crash leaves a log with an intact end.
  await logStore(table.dir).remove(stale.toSorted());
  await options.crashPoint('trimmed');
  return stale.length;
}

export interface Leftovers {
  /** Keys of unfinished writes in the lake. */
  readonly unfinished: readonly string[];
  /** Files in the folders of young files, relative to the table's folder. */
  readonly young: readonly string[];
  readonly former: readonly string[];
  readonly isInHand: (file: string) => boolean;
}

/**
 * Lists possible leftovers. Only for a compactor that has claimed the lake and not begun to write. `isPrimary`: adds
 * those next to the tables.
 */
export async function listLeftovers(tableDir: string, stagingDir: string, isPrimary: boolean): Promise<Leftovers> {
  const table = path.basename(tableDir);
  const folders = ['', path.basename(logFolder(tableDir)), ...youngFolders].map((name) =>
    path.posix.join(table, name, '/'),
  );
  const store = lakeStore(path.dirname(tableDir));
  const listed = await Promise.all(
    [...(isPrimary ? [''] : []), ...folders].map((prefix) => store.listUnfinished(prefix)),
  );
  const young = await listYoungPaths(tableDir);
  const former = await listFormerPaths(tableDir);
  // Listed after the files: the log then has work that ended in between.
  return { unfinished: listed.flat(), young, former, isInHand: await findNamesInProgress(stagingDir) };
}

/**
 * Removes unfinished writes and uncommitted young files. `toQuarantined` returns the key at which the latter are kept,
 * since commits may be lost.
 */
export async function sweep(
  table: Table,
  { unfinished, young, former, isInHand }: Leftovers,
  crashPoint: CrashPoint,
  toQuarantined?: (file: string) => string,
): Promise<number> {
  const { files, tombstones } = table.state();
  const known = listKnownPaths(files.values(), tombstones.keys());
  const store = lakeStore(path.dirname(table.dir));
  const listUnnamed = (names: readonly string[]): string[] =>
    names.filter((name) => !known.has(name) && !isInHand(name)).map((name) => `${path.basename(table.dir)}/${name}`);
  const unnamed = listUnnamed(young);
  await store.remove(listUnnamed(former));
  if (toQuarantined === undefined) await store.remove(unnamed);
  else {
    const moves = unnamed.map((key) => [key, toQuarantined(path.basename(key))] as const);
    for (const [key, to] of moves) await store.move(key, to);
    await store.sync(moves.flat());
  }
  await store.remove(unfinished);
  await removeFormerFolders(table.dir);
  await crashPoint('swept');
  return unnamed.length + unfinished.length;
}
