import { stat, statfs } from 'node:fs/promises';
import { startPollLoop } from '../async/poll-loop.ts';
import { describeError, isSystemError } from '../errors.ts';
import type { Stoppable } from '../lifecycle.ts';
import type { Logger } from '../logger.ts';
import { closeSync, openSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Problem } from '../problems/problem.ts';

/** Interval between checks, ms: short while the disk is busy or low, so that writes in between fit in the reserve. */
const checkEveryMs = { busy: 500, idle: 3000 } as const;
/** A disk counts as busy for this time after the last write, ms. */
const busyMs = 3000;

interface DiskWatch extends Stoppable {
  /** Reports whether less than the reserve was free at the last check. */
  isLow(): boolean;
  expectWrites(): void;
}

export interface DiskSpace {
  /** Available to an ordinary user. */
  readonly freeBytes: number;
  readonly sizeBytes: number;
}

export async function readDiskSpace(folder: string): Promise<DiskSpace> {
  const { bavail, blocks, bsize } = await statfs(folder);
  return { freeBytes: bavail * bsize, sizeBytes: blocks * bsize };
}

export async function readFreeBytes(folder: string): Promise<number> {
  return (await readDiskSpace(folder)).freeBytes;
}

export async function isSameDisk(folder: string, other: string): Promise<boolean> {
  const [one, two] = await Promise.all([stat(folder), stat(other)]);
  return one.dev === two.dev;
}

/** Starts watching the free space of an existing folder. A check that fails keeps the last result. */
export async function startDiskWatch(folder: string, reserveBytes: number, logger: Logger): Promise<DiskWatch> {
  let low = false;
  let busyUntilMs = 0;
  async function check(): Promise<void> {
    const freeBytes = await readFreeBytes(folder);
    if (low === freeBytes < reserveBytes) return;
    low = !low;
    logger[low ? 'error' : 'info'](
      { folder, freeBytes, reserveBytes },
      low ? 'free disk space is below the reserve' : 'free disk space is above the reserve again',
    );
  }
  const onError = (error: unknown): void =>
    logger.warn({ folder, error: describeError(error) }, 'cannot read free space');
  await check().catch(onError);
  const isBusy = (): boolean => performance.now() < busyUntilMs;
  const everyMs = (): number => checkEveryMs[low || isBusy() ? 'busy' : 'idle'];
  const loop = startPollLoop(check, { everyMs, onError, pausesFirst: true });
  return {
    isLow: () => low,
    expectWrites() {
      const wasBusy = isBusy();
      busyUntilMs = performance.now() + busyMs;
      if (!wasBusy) loop.wake();
    },
    stop: () => loop.stop(),
  };
}

interface DiskUsage {
  readonly holds: readonly string[];
  readonly freeBytes: number;
  readonly totalBytes: number;
}

/** Reads the usage of the disks of some folders, by name. A missing folder is left out. */
export async function readDisks(folders: Readonly<Record<string, string>>): Promise<DiskUsage[]> {
  const disks = new Map<number, DiskUsage>();
  for (const [name, folder] of Object.entries(folders)) {
    try {
      const { dev } = await stat(folder);
      const { freeBytes, sizeBytes } = await readDiskSpace(folder);
      const holds = [...(disks.get(dev)?.holds ?? []), name];
      disks.set(dev, { holds, freeBytes, totalBytes: sizeBytes });
    } catch (error) {
      if (!isSystemError(error, 'ENOENT')) throw error;
    }
  }
  return [...disks.values()];
}

/** Detects that a process has no free file descriptor: the kernel then accepts and closes new connections. */
export interface DescriptorWatch {
  problems(): readonly Problem[];
}

/** Minimum time for which a problem is reported, ms: a flood takes each freed descriptor, and it would flap. */
const heldMs = 5000;
const file = fileURLToPath(import.meta.url);

function isExhausted(): boolean {
  try {
    closeSync(openSync(file, 'r'));
    return false;
  } catch (error) {
    return isSystemError(error, 'EMFILE', 'ENFILE');
  }
}

export function createDescriptorWatch(who: string): DescriptorWatch {
  let exhaustedMs = Number.NEGATIVE_INFINITY;
  const problem: Problem = {
    code: 'descriptors_exhausted',
    subject: who,
    message: `${who} has no free file descriptors and rejects new connections`,
    action:
      'Close connections of clients that hold many, or raise the limit on open files (ulimit -n) and restart. The service resumes as soon as it can open files.',
  };
  return {
    problems() {
      if (isExhausted()) exhaustedMs = performance.now();
      return performance.now() - exhaustedMs < heldMs ? [problem] : [];
    },
  };
}
