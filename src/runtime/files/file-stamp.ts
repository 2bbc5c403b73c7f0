import { statSync, type BigIntStats } from 'node:fs';

/** Names one state of a file, without reading it: its number, size and time of the last write. */
export function stampOf(stats: Pick<BigIntStats, 'ino' | 'size' | 'mtimeNs'>): string {
  return `${stats.ino}:${stats.size}:${stats.mtimeNs}`;
}

/** The state of a file; undefined when there is none. */
export function findStamp(file: string): string | undefined {
  // Asked several times a second of files that may never be there: an error would cost more than the look.
  const stats = statSync(file, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? undefined : stampOf(stats);
}
