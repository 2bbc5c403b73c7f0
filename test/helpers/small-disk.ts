import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { onTestFinished } from 'vitest';

/** A small, separate file system, which can be filled and emptied again. */
export interface SmallDisk {
  freeBytes(): number;
  /** Adds ballast until only `leaveBytes` are free. */
  fill(leaveBytes: number): void;
  /** Removes the ballast. */
  empty(): void;
}

const ballastPieceBytes = 1024 * 1024;

/**
 * Mounts a small file system on a new folder; undefined without the rights to do so. Unmounted at the end of the test.
 */
export function mountSmallDisk(folder: string, sizeBytes: number): SmallDisk | undefined {
  mkdirSync(folder, { recursive: true });
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${sizeBytes},mode=0700`, 'tmpfs', folder], { stdio: 'ignore' });
  } catch {
    return undefined;
  }
  onTestFinished(() => void execFileSync('umount', ['--lazy', folder]));
  const ballast = path.join(folder, 'ballast');
  const freeBytes = (): number => {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  };
  return {
    freeBytes,
    fill(leaveBytes) {
      // others write and delete at the same time: space that is free now may be used before the ballast is written
      for (let free = freeBytes(); free > leaveBytes; free = freeBytes()) {
        try {
          writeFileSync(ballast, Buffer.alloc(Math.min(free - leaveBytes, ballastPieceBytes)), { flag: 'a' });
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
        }
      }
    },
    empty: () => rmSync(ballast, { force: true }),
  };
}
