import path from 'node:path';
import { importDatasets } from '../datasets/dataset.ts';
import type { Clock } from '../runtime/clock.ts';
import { isAppError } from '../runtime/errors.ts';
import { parseChecksummed, renderChecksummed } from '../runtime/files/checksummed-json.ts';
import { tableFileMode } from '../runtime/files/group-access.ts';
import { findText, type ObjectStore } from '../runtime/store/object-store.ts';
import { lakeStore } from './files/data-file.ts';
import { lakePaths } from './lake.ts';
import { type ChangeCursor, type ReaderNeeds, findNewestState, readSnapshotAt } from './log/change-feed.ts';
import type { Epoch } from './log/lake-state.ts';
import { listLog } from './log/log-files.ts';
import { readSnapshot, type Snapshot } from './log/snapshot.ts';

/**
 * The watermark is the time up to which a lake is complete.
 *
 * Every event that was acknowledged before the broker's clock first showed the watermark is in the lake: in a table, as
 * a failed event, as a duplicate, or erased. Events that the broker lost are excepted; a stream fault reports them.
 *
 * A watermark belongs to a stream position. The commit of each flush stores the storage time of the batch's last
 * message. `watermark.json` stores a later time for an idle stream. It is written without fsync, and ignored if it is
 * damaged or about another position.
 *
 * If the broker's clock is set back, the watermark follows when the compactor reads the new time. Until then it is in
 * the future and not reported.
 * Crash: a missing or damaged `watermark.json` is ignored, and written again within seconds.
 */

export interface WatermarkRecord extends Pick<Epoch, 'appId' | 'position'> {
  /** Unix ms, by the broker's clock. */
  readonly watermarkMs: number;
}

/** Opens the store of the watermark, and returns its key there. */
function openWatermark(lakeDir: string): { readonly store: ObjectStore; readonly key: string } {
  const { root, watermark } = lakePaths(lakeDir);
  return { store: lakeStore(root, { mode: tableFileMode }), key: path.basename(watermark) };
}

export async function writeWatermark(
  lakeDir: string,
  { appId, position, watermarkMs }: WatermarkRecord,
): Promise<void> {
  const { store, key } = openWatermark(lakeDir);
  await store.note(key, Buffer.from(renderChecksummed({ appId, position, watermarkMs })));
}

async function findClaim(lakeDir: string): Promise<Partial<WatermarkRecord> | undefined> {
  try {
    const { store, key } = openWatermark(lakeDir);
    const text = await findText(store, key);
    return text === undefined ? undefined : parseChecksummed(text);
  } catch {
    return undefined;
  }
}

/** Returns a watermark unless it is in the future of `clock`. */
export function publishableWatermark(watermarkMs: number | undefined, clock: Clock): number | undefined {
  return watermarkMs === undefined || watermarkMs > clock.nowMs() ? undefined : watermarkMs;
}

/** Returns the watermark of a table's state, Unix ms; undefined if unknown or in the future of `clock`. */
export async function findWatermarkMs(
  lakeDir: string,
  epoch: Epoch | undefined,
  clock: Clock,
): Promise<number | undefined> {
  if (epoch === undefined) return undefined;
  const claim = await findClaim(lakeDir);
  const isSame = claim?.appId === epoch.appId && claim.position === epoch.position;
  // The later statement about the position is valid, even with an earlier time.
  const watermarkMs = isSame && Number.isSafeInteger(claim.watermarkMs) ? claim.watermarkMs : epoch.watermarkMs;
  return publishableWatermark(watermarkMs, clock);
}

/** Returns the current watermark of a lake, as `findWatermarkMs`; undefined also if the newest commit is unreadable. */
export async function readWatermarkMs(lakeDir: string, clock: Clock): Promise<number | undefined> {
  // Secondary tables are never behind the events table.
  const { table } = lakePaths(lakeDir);
  const newest = await findNewestState(table, (await listLog(table)).commits).catch(() => undefined);
  return findWatermarkMs(lakeDir, newest?.epoch, clock);
}

/** Reports whether later reads of a table have all events acknowledged before `untilMs`, Unix ms. */
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

export interface SnapshotWithWatermark {
  readonly snapshot: Snapshot;
  readonly watermarkMs: number | undefined;
}

/** Reports whether a table stores imported events. Others have no watermark. */
function hasWatermark(tableDir: string): boolean {
  return importDatasets.some(({ table }) => table === path.basename(tableDir));
}

/** Reads a version of a table, the newest by default, with its watermark. */
export async function readSnapshotWithWatermark(
  tableDir: string,
  clock: Clock,
  at?: ChangeCursor,
  needs: ReaderNeeds = {},
): Promise<SnapshotWithWatermark> {
  const lakeDir = path.dirname(tableDir);
  const isMarked = hasWatermark(tableDir);
  if (at !== undefined) {
    const snapshot = await readSnapshotAt(tableDir, at, needs);
    return {
      snapshot,
      watermarkMs: isMarked ? await findWatermarkMs(lakeDir, snapshot.lake?.epoch, clock) : undefined,
    };
  }
  // Read before the table: it has all events before the watermark.
  const watermarkMs = isMarked ? await readWatermarkMs(lakeDir, clock) : undefined;
  return { snapshot: await readSnapshot(tableDir, needs.needed), watermarkMs };
}
