import path from 'node:path';
import { ensureFolder, moveFile, removeFile, syncFolder, syncFolders } from '../runtime/files/durable-file.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { listNames } from '../runtime/files/folder-names.ts';
import { decodePath } from './log/actions.ts';
import { findLastCheckpoint, writeCheckpoint } from './log/checkpoint.ts';
import { isClockBehind, findLakeState } from './log/lake-state.ts';
import type { Duckdb } from './sql/duckdb.ts';
import { oldestPendingBase } from './files/failed-events.ts';
import { checkpointHashName, checkpointName, commitName, listLog, logFolder, readCommit } from './log/log-files.ts';
import { findShown } from './files/places.ts';
import { findNamesInHand } from './files/staging.ts';
import type { Table } from './log/table.ts';
import { recordVersions } from './log/version-points.ts';
import { copyTableState } from './log/table-state.ts';
import {
  listFormerPaths,
  listKnownPaths,
  listYoungPaths,
  placeOf,
  removeFormerFolders,
  youngFolder,
} from './log/young-folder.ts';

/** The steps of clean-up at which a crash is tested. */
export const cleanSteps = ['vacuumed', 'versions-recorded', 'trimmed', 'swept'] as const;

/** A checkpoint is due when this many commits have followed the last. */
export const checkpointEvery = 100;

export interface CleanOptions {
  readonly nowMs: number;
  readonly retentionMs: number;
  readonly crashPoint: CrashPoint;
}

/**
 * The version before which the history is to go now, because of an erasure; undefined when none is, or its readers have
 * time left.
 */
function findForgotten(table: Table, nowMs: number): number | undefined {
  const { forgetBefore, forgetAtMs = 0 } = table.lake();
  return nowMs >= forgetAtMs ? forgetBefore : undefined;
}

/**
 * Says whether an erasure waits for the history to go that still has the erased rows, and whether without regard for
 * those who still read it.
 */
export async function mustForget(table: Table, nowMs: number): Promise<'no' | 'now' | 'in time'> {
  const forgetBefore = findForgotten(table, nowMs);
  if (forgetBefore === undefined) return 'no';
  const { commits } = await listLog(table.dir);
  if ((commits[0] ?? forgetBefore) >= forgetBefore) return 'no';
  return table.lake().forgetAtMs === undefined ? 'now' : 'in time';
}

/**
 * Unlinks the files whose removal is older than the retention, and forgets their tombstones in `table`'s next
 * checkpoint. Returns how many went.
 */
export async function vacuum(table: Table, options: CleanOptions): Promise<number> {
  const { tombstones } = table.state();
  const atPlaces = new Map(table.snapshot().files.map((file) => [file.place, file]));
  const emptied = new Set<string>();
  let removed = 0;
  for (const [encoded, remove] of tombstones) {
    const age = options.nowMs - (typeof remove.deletionTimestamp === 'number' ? remove.deletionTimestamp : 0);
    if (age < options.retentionMs) continue;
    const file = decodePath(encoded);
    const place = file === undefined ? undefined : placeOf(file);
    const successor = place === undefined ? undefined : atPlaces.get(place);
    // Readers of the glob have a sealed file of an earlier version until its rewrite takes its place.
    if (place === file && successor !== undefined && (await findShown(table.dir, successor)) !== 'itself') continue;
    if (file !== undefined && (place !== file || successor === undefined)) await removeFile(path.join(table.dir, file));
    if (place !== undefined && successor === undefined) emptied.add(place);
    // The commits still name it until they are trimmed; unlinking a file that is gone costs nothing.
    tombstones.delete(encoded);
    removed += 1;
  }
  if (emptied.size > 0) {
    const kept = listKnownPaths([], tombstones.keys());
    for (const place of emptied) if (!kept.has(place)) await removeFile(path.join(table.dir, place));
  }
  await options.crashPoint('vacuumed');
  return removed;
}

/**
 * Writes a checkpoint when enough commits have followed the last one, or history must go. Returns the version of the
 * newest one.
 */
export async function checkpointWhenDue(
  duckdb: Duckdb,
  table: Table,
  crashPoint: CrashPoint,
  every = checkpointEvery,
): Promise<number> {
  const { checkpoints } = await listLog(table.dir);
  const { version } = table.state();
  const last = checkpoints.at(-1) ?? 0;
  // A crash can leave `_last_checkpoint` behind; other engines would look for a checkpoint that is trimmed by then.
  const isHinted = (await findLastCheckpoint(table.dir))?.version === last;
  if (isHinted && version - last < every && last >= (table.lake().forgetBefore ?? 0)) return last;
  const state = copyTableState(table.state());
  await writeCheckpoint(duckdb, table.dir, state, crashPoint);
  return state.version;
}

/** When this service committed a version; undefined when another engine did, whose time says nothing. */
async function findCommittedAtMs(tableDir: string, version: number): Promise<number | undefined> {
  const info = (await readCommit(tableDir, version)).actions.find(
    (action) => action.commitInfo !== undefined,
  )?.commitInfo;
  return findLakeState(info) === undefined ? undefined : info?.timestamp;
}

/** The newest commit of ours up to a version: a checkpoint's provenance. */
async function findOwnVersion(tableDir: string, version: number, commits: readonly number[]): Promise<number> {
  for (let own = version; commits.includes(own); own -= 1) {
    if ((await findCommittedAtMs(tableDir, own)) !== undefined) return own;
  }
  return version;
}

/**
 * Deletes the commits and checkpoints that no reader within the retention starts from: those before the newest
 * checkpoint that is older than the retention, and those that refer to erased rows. The newest commit of ours up to that
 * checkpoint stays, for its provenance. `failedDir` holds the failed events whose place is looked up in this log; of a
 * table that has none it is undefined. Only for the one compactor: any other writer would take the freed numbers for
 * new ones. Returns how many files went.
 */
export async function trimLog(table: Table, failedDir: string | undefined, options: CleanOptions): Promise<number> {
  const { commits, checkpoints } = await listLog(table.dir);
  const needed = failedDir === undefined ? Infinity : await oldestPendingBase(failedDir);
  const forgetBefore = findForgotten(table, options.nowMs);
  const forgetFrom = checkpoints.find((version) => version >= (forgetBefore ?? Infinity));
  let keepFrom = forgetFrom !== undefined && forgetFrom <= needed ? forgetFrom : 0;
  for (const version of checkpoints) {
    if (version <= keepFrom || version > needed || !commits.includes(version)) continue;
    const committedAtMs = await findCommittedAtMs(table.dir, version);
    // A time in the future was given by a clock that was ahead: later commits say how old this one is at least.
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
  // Oldest first: a crash leaves a log whose end is whole.
  for (const name of stale.toSorted()) await removeFile(path.join(logFolder(table.dir), name));
  await options.crashPoint('trimmed');
  return stale.length;
}

/** What crashes may have left in the table's folders: temporaries, and young files to be looked up in the log. */
export interface Leftovers {
  readonly temporaries: readonly string[];
  /** What lies in the folders of young files, relative to the table's. */
  readonly young: readonly string[];
  /** What lies in other folders that only earlier versions wrote to. */
  readonly former: readonly string[];
  /** Reports whether a file belongs to work in hand, such as a load. */
  readonly isInHand: (file: string) => boolean;
}

/**
 * Lists what may be left over in a table's folders, and in those named beside. By a compactor that has claimed the lake
 * and has not begun to write: nothing of it is its own, and whoever it has taken the lake from commits nothing more.
 */
export async function listLeftovers(
  tableDir: string,
  stagingDir: string,
  beside: readonly string[] = [],
): Promise<Leftovers> {
  const temporaries: string[] = [];
  for (const folder of [...beside, tableDir, logFolder(tableDir)]) {
    const names = await listNames(folder);
    temporaries.push(...names.filter((name) => name.endsWith('.tmp')).map((name) => path.join(folder, name)));
  }
  const young = await listYoungPaths(tableDir);
  const former = await listFormerPaths(tableDir);
  // After the files: work that has ended by then is known from the log.
  return { temporaries, young, former, isInHand: await findNamesInHand(stagingDir) };
}

/**
 * Removes temporaries, and young files that no commit names. With `putAside`, those files are moved there instead,
 * under the names that it gives: where the stream does not agree with the log, entries of the log may be gone, and the
 * files be the only place that has their events. Under the maintenance lock, with the table refreshed after the listing.
 * Returns how many files went.
 */
export async function sweep(
  table: Table,
  { temporaries, young, former, isInHand }: Leftovers,
  crashPoint: CrashPoint,
  putAside?: { readonly folder: string; readonly toName: (file: string) => string },
): Promise<number> {
  const { files, tombstones } = table.state();
  const known = listKnownPaths(files.values(), tombstones.keys());
  const listUnnamed = (names: readonly string[]): string[] =>
    names.filter((name) => !known.has(name) && !isInHand(name)).map((name) => path.join(table.dir, name));
  const unnamed = listUnnamed(young);
  for (const file of listUnnamed(former)) await removeFile(file);
  if (putAside !== undefined && unnamed.length > 0) {
    const { folder, toName } = putAside;
    await ensureFolder(folder);
    for (const file of unnamed) await moveFile(file, path.join(folder, toName(path.basename(file))));
    await syncFolder(folder);
  } else {
    for (const file of unnamed) await removeFile(file);
  }
  for (const file of temporaries) await removeFile(file);
  await syncFolders([path.join(table.dir, youngFolder), ...unnamed.map((file) => path.dirname(file))]);
  await removeFormerFolders(table.dir);
  await crashPoint('swept');
  return unnamed.length + temporaries.length;
}
