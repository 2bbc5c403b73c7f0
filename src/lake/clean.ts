import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { removeFile, syncFolder } from '../runtime/durable-file.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { decodePath } from './actions.ts';
import { findLastCheckpoint, writeCheckpoint } from './checkpoint.ts';
import type { Duckdb } from './duckdb.ts';
import { oldestPendingBase } from './failed-events.ts';
import { checkpointName, commitName, listLog, logFolder, readCommit } from './log-files.ts';
import { youngFolder } from './snapshot.ts';
import type { Table } from './table.ts';
import { copyTableState } from './table-state.ts';

/** The steps of clean-up at which a crash is tested. */
export const cleanSteps = ['vacuumed', 'trimmed', 'swept'] as const;

/** A checkpoint is due when this many commits have followed the last. */
export const checkpointEvery = 100;

export interface CleanOptions {
  readonly nowMs: number;
  readonly retentionMs: number;
  readonly crashPoint: CrashPoint;
}

/**
 * Says whether an erasure waits for the history to go that still has the erased rows.
 */
export async function mustForget(table: Table): Promise<boolean> {
  const { forgetBefore } = table.lake();
  if (forgetBefore === undefined) return false;
  const { commits } = await listLog(table.dir);
  return (commits[0] ?? forgetBefore) < forgetBefore;
}

/**
 * Unlinks the files whose removal is older than the retention, and forgets their tombstones in `table`'s next checkpoint.
 * Returns how many went.
 */
export async function vacuum(table: Table, options: CleanOptions): Promise<number> {
  const { tombstones } = table.state();
  let removed = 0;
  for (const [encoded, remove] of tombstones) {
    const age = options.nowMs - (typeof remove.deletionTimestamp === 'number' ? remove.deletionTimestamp : 0);
    if (age < options.retentionMs) continue;
    const file = decodePath(encoded);
    if (file !== undefined) await removeFile(path.join(table.dir, file));
    // The commits still tell of it until they are trimmed; unlinking a file that is gone costs nothing.
    tombstones.delete(encoded);
    removed += 1;
  }
  await options.crashPoint('vacuumed');
  return removed;
}

/** Writes a checkpoint when enough commits have followed the last one, or history must go. Returns whether it did. */
export async function checkpointWhenDue(duckdb: Duckdb, table: Table, crashPoint: CrashPoint, every = checkpointEvery): Promise<boolean> {
  const { checkpoints } = await listLog(table.dir);
  const state = copyTableState(table.state());
  const last = checkpoints.at(-1) ?? 0;
  // A crash can leave `_last_checkpoint` behind; other engines would look for a checkpoint that is trimmed by then.
  const isHinted = (await findLastCheckpoint(table.dir))?.version === last;
  if (isHinted && state.version - last < every && last >= (table.lake().forgetBefore ?? 0)) return false;
  await writeCheckpoint(duckdb, table.dir, state, crashPoint);
  return true;
}

async function committedAtMs(tableDir: string, version: number): Promise<number> {
  const info = (await readCommit(tableDir, version)).actions.find((action) => action.commitInfo !== undefined)?.commitInfo;
  return info?.timestamp ?? Infinity;
}

/**
 * Deletes the commits and checkpoints that no reader within the retention starts from: those before the newest checkpoint
 * that is older than the retention, and those that tell of erased rows. The commit of that checkpoint stays, for its
 * provenance. Only for the one compactor: any other writer would take the freed numbers for new ones. Returns how many
 * files went.
 */
export async function trimLog(table: Table, failedDir: string, options: CleanOptions): Promise<number> {
  const { commits, checkpoints } = await listLog(table.dir);
  const needed = await oldestPendingBase(failedDir);
  const { forgetBefore } = table.lake();
  const forgetFrom = checkpoints.find((version) => version >= (forgetBefore ?? Infinity));
  let keepFrom = forgetFrom !== undefined && forgetFrom <= needed ? forgetFrom : 0;
  for (const version of checkpoints) {
    if (version <= keepFrom || version > needed || !commits.includes(version)) continue;
    if (options.nowMs - (await committedAtMs(table.dir, version)) < options.retentionMs) break;
    keepFrom = version;
  }
  const stale = [...commits.filter((version) => version < keepFrom).map(commitName), ...checkpoints.filter((version) => version < keepFrom).map(checkpointName)];
  // Oldest first: a crash leaves a log whose end is whole.
  for (const name of stale.toSorted()) await removeFile(path.join(logFolder(table.dir), name));
  await options.crashPoint('trimmed');
  return stale.length;
}

/**
 * Removes what crashes have left in the table's folders: temporaries, and young files that no commit names. Only at the
 * start of the one compactor that may flush, before it does, and under the maintenance lock. Returns how many files went.
 */
export async function sweep(table: Table, crashPoint: CrashPoint): Promise<number> {
  const { files, tombstones } = table.state();
  const known = new Set([...files.keys(), ...tombstones.keys()].map(decodePath));
  const young = (await readdir(path.join(table.dir, youngFolder))).filter((name) => !known.has(`${youngFolder}/${name}`));
  const stale = young.map((name) => path.join(table.dir, youngFolder, name));
  for (const folder of [path.dirname(table.dir), table.dir, logFolder(table.dir)]) {
    const names = await readdir(folder);
    stale.push(...names.filter((name) => name.endsWith('.tmp')).map((name) => path.join(folder, name)));
  }
  for (const file of stale) await removeFile(file);
  await syncFolder(path.join(table.dir, youngFolder));
  await crashPoint('swept');
  return stale.length;
}
