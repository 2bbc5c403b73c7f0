import { statSync } from 'node:fs';

/**
 * What differs between one state of a file and the next, without reading it: its number, size and time of the last write.
 * Undefined when there is none.
 */
export function findStamp(file: string): string | undefined {
  // Asked several times a second of files that may never be there: an error would cost more than the look.
  const stats = statSync(file, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? undefined : `${stats.ino}:${stats.size}:${stats.mtimeNs}`;
}
