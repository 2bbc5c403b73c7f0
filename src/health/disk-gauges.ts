import { boundedBy } from '../runtime/async/bounded-by.ts';
import { readDiskRoom, type DiskRoom } from '../runtime/files/disk-watch.ts';
import type { Metrics } from '../runtime/metrics.ts';

/** A disk that has not answered for so long stands still, milliseconds: the service has other metrics to show. */
const answerMs = 500;

/** The folders whose disks are shown, by the name that they have there, and the free space that is kept on each. */
export interface WatchedDisks {
  readonly folders: Readonly<Record<string, string>>;
  readonly reserveBytes: number;
}

/**
 * Gives the gauges of the room on the disks. A folder that is not there is left out; where a disk does not answer, its
 * folders and those that come after them. Folders of one disk show the same.
 */
export function followDisks(
  metrics: Metrics,
  { folders, reserveBytes }: WatchedDisks,
  readRoom: (folder: string) => Promise<DiskRoom> = readDiskRoom,
): void {
  const free = metrics.gauge('disk_free_bytes', 'Bytes free for the service on the disk of a folder.', ['folder']);
  const size = metrics.gauge('disk_size_bytes', 'Size of the disk of a folder.', ['folder']);
  const reserve = metrics.gauge('disk_reserve_bytes', 'Free bytes at which nothing more is taken.');
  reserve.set(reserveBytes);
  /** Folders that the look under way has not come to yet. */
  const awaited = new Set<string>();
  let looking: Promise<void> | undefined;

  function show(folder: string, room: DiskRoom | undefined): void {
    for (const [gauge, bytes] of [[free, room?.freeBytes] as const, [size, room?.sizeBytes] as const]) {
      if (bytes === undefined) gauge.remove({ folder });
      else gauge.set({ folder }, bytes);
    }
  }

  /** One after the other: each look at a disk that stands still holds a thread of the process until that disk moves. */
  async function look(): Promise<void> {
    for (const folder of Object.keys(folders)) awaited.add(folder);
    for (const [folder, place] of Object.entries(folders)) {
      const room = await readRoom(place).catch(() => undefined);
      awaited.delete(folder);
      show(folder, room);
    }
  }

  metrics.beforeRead(async () => {
    looking ??= look().finally(() => {
      looking = undefined;
    });
    await boundedBy(answerMs, looking).catch(() => awaited.forEach((folder) => show(folder, undefined)));
  });
}
