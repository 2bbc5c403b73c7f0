import path from 'node:path';
import { importDatasets } from '../datasets/dataset.ts';
import type { Clock } from '../runtime/clock.ts';
import { isAppError } from '../runtime/errors.ts';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { findTextFile, replaceFile } from '../runtime/files/durable-file.ts';
import { tableFileMode } from '../runtime/files/group-access.ts';
import { lakePaths } from './lake.ts';
import { type FeedPlace, findNewestState, readSnapshotAt } from './log/change-feed.ts';
import type { Epoch } from './log/lake-state.ts';
import { listLog } from './log/log-files.ts';
import { readSnapshot, type Snapshot } from './log/snapshot.ts';

/**
 * The watermark: up to when a lake is complete.
 *
 * Every event whose import was answered with 200 before the broker's clock first showed the watermark is in the lake, in
 * the version that the watermark is told of and in all after it; or it is a failed event, a repeat of one that is there, or
 * erased since. What the broker has lost, or whoever purged its stream has taken, is reported as a fault of the stream,
 * and is excepted.
 *
 * It is a statement about a position of the stream, and stays true whatever becomes of the lake. Two places have it: the
 * commit of each flush, by when the last message of its batch was stored; and `watermark.json`, for a stream that has had
 * nothing new since the position of the newest commit, by the time at which the broker said so. The file is written
 * without an fsync, by whoever compacts, and is passed over where it is damaged or about another position.
 *
 * A broker's clock that is set back takes the watermark back with it, once the compactor has heard of it. Until then the
 * watermark lies in the future, where it is not told. One that was told before stays true of the times that the clock
 * showed before it was set back; of those that it shows again, it says nothing.
 * Crash: a missing or damaged `watermark.json` is ignored, and written again within seconds.
 */

export interface WatermarkClaim extends Pick<Epoch, 'appId' | 'position'> {
  /** Unix ms, by the broker's clock. */
  readonly watermarkMs: number;
}

/** Stores the watermark of the newest commit's position. Errors: the file system's; the file is then unchanged. */
export async function keepWatermark(lakeDir: string, { appId, position, watermarkMs }: WatermarkClaim): Promise<void> {
  await replaceFile(lakePaths(lakeDir).watermark, renderChecked({ appId, position, watermarkMs }), tableFileMode);
}

/** Reads the file; undefined if it is missing, damaged or unreadable. */
async function findClaim(lakeDir: string): Promise<Partial<WatermarkClaim> | undefined> {
  try {
    const text = await findTextFile(lakePaths(lakeDir).watermark);
    return text === undefined ? undefined : parseChecked(text);
  } catch {
    return undefined;
  }
}

/** Returns a watermark unless it is in the future of a clock. */
export function tellWatermark(watermarkMs: number | undefined, clock: Clock): number | undefined {
  return watermarkMs === undefined || watermarkMs > clock.nowMs() ? undefined : watermarkMs;
}

/**
 * Returns the watermark of a state of any table with imported events, by its epoch, Unix ms; undefined if unknown, or
 * in the future of `clock`, after a change of either clock.
 */
export async function findWatermarkMs(
  lakeDir: string,
  epoch: Epoch | undefined,
  clock: Clock,
): Promise<number | undefined> {
  if (epoch === undefined) return undefined;
  const claim = await findClaim(lakeDir);
  const isSame = claim?.appId === epoch.appId && claim.position === epoch.position;
  // The later statement about the position wins, even with an earlier time.
  const watermarkMs = isSame && Number.isSafeInteger(claim.watermarkMs) ? claim.watermarkMs : epoch.watermarkMs;
  return tellWatermark(watermarkMs, clock);
}

/**
 * Returns the current watermark of a lake: later reads of any table with imported events have all earlier events. As
 * `findWatermarkMs`; undefined also if the newest commit is unreadable. Cost: one listing and two small files.
 */
export async function readWatermarkMs(lakeDir: string, clock: Clock): Promise<number | undefined> {
  // The other tables are never behind the events.
  const { table } = lakePaths(lakeDir);
  const newest = await findNewestState(table, (await listLog(table)).commits).catch(() => undefined);
  return findWatermarkMs(lakeDir, newest?.epoch, clock);
}

/**
 * Reports whether later reads of a table have all events that were acknowledged before the broker's clock showed
 * `untilMs`, Unix ms. True for a table or a lake without imported events; false if the newest commit is unreadable.
 */
export async function isCompleteUpTo(tableDir: string, untilMs: number, clock: Clock): Promise<boolean> {
  if (!hasWatermark(tableDir)) return true;
  const lakeDir = path.dirname(tableDir);
  const watermarkMs = await readWatermarkMs(lakeDir, clock);
  if (watermarkMs !== undefined) return watermarkMs >= untilMs;
  const { table } = lakePaths(lakeDir);
  try {
    return (await findNewestState(table, (await listLog(table)).commits))?.epoch === undefined;
  } catch (error) {
    if (isAppError(error, 'log_damaged')) return false;
    throw error;
  }
}

/** A version of a table, and its watermark, Unix ms, if known. */
export interface MarkedSnapshot {
  readonly snapshot: Snapshot;
  readonly watermarkMs: number | undefined;
}

/** Reports whether a table gets imported events; others have no watermark. */
function hasWatermark(tableDir: string): boolean {
  return importDatasets.some(({ table }) => table === path.basename(tableDir));
}

/**
 * Reads a version of a table with its watermark, the newest by default, for a reader of some apps or of all. Errors:
 * those of `readSnapshot` and `readSnapshotAt`.
 */
export async function readMarkedSnapshot(
  tableDir: string,
  clock: Clock,
  at?: FeedPlace,
  idApps?: readonly number[],
): Promise<MarkedSnapshot> {
  const lakeDir = path.dirname(tableDir);
  const isMarked = hasWatermark(tableDir);
  if (at !== undefined) {
    const snapshot = await readSnapshotAt(tableDir, at, idApps);
    return {
      snapshot,
      watermarkMs: isMarked ? await findWatermarkMs(lakeDir, snapshot.lake?.epoch, clock) : undefined,
    };
  }
  // Before the table: reads after a watermark have all events before it.
  const watermarkMs = isMarked ? await readWatermarkMs(lakeDir, clock) : undefined;
  return { snapshot: await readSnapshot(tableDir), watermarkMs };
}
