import { stat } from 'node:fs/promises';
import { isSystemError } from '../errors.ts';
import { readDiskRoom } from './disk-watch.ts';

/** A disk, and which of some folders lie on it. */
export interface DiskUsage {
  /** The names of those folders. */
  readonly holds: readonly string[];
  /** Free for an ordinary user. */
  readonly freeBytes: number;
  readonly totalBytes: number;
}

/** Says how full the disks of some folders are, by name; a folder that is not there is left out. */
export async function readDisks(folders: Readonly<Record<string, string>>): Promise<DiskUsage[]> {
  const disks = new Map<number, DiskUsage>();
  for (const [name, folder] of Object.entries(folders)) {
    try {
      const { dev } = await stat(folder);
      const { freeBytes, sizeBytes } = await readDiskRoom(folder);
      const holds = [...(disks.get(dev)?.holds ?? []), name];
      disks.set(dev, { holds, freeBytes, totalBytes: sizeBytes });
    } catch (error) {
      if (!isSystemError(error, 'ENOENT')) throw error;
    }
  }
  return [...disks.values()];
}
