import { stat, statfs } from 'node:fs/promises';
import { startPollLoop } from '../async/poll-loop.ts';
import { describeError, isSystemError } from '../errors.ts';
import type { Stoppable } from '../lifecycle.ts';
import type { Logger } from '../logger.ts';
import { closeSync, openSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Problem } from '../conditions/problem.ts';

/**
 * Between looks, milliseconds: while something is written, often enough that what arrives in between fits into any
 * sensible reserve, and as often while the disk is low, so that its room is soon used again.
 */
const checkEveryMs = { busy: 500, idle: 3000 } as const;
/** A disk is looked at often for so long after the last write, milliseconds. */
const busyMs = 3000;

/** Watches the free space of one folder's file system. */
interface DiskWatch extends Stoppable {
  /** Says whether less than the reserve was free at the last look. */
  isLow(): boolean;
  /** Something is about to be written: the disk is looked at now, and more often for a while. */
  expectWrites(): void;
}

/** The room on a file system, bytes. */
export interface DiskRoom {
  /** For an ordinary user. */
  readonly freeBytes: number;
  readonly sizeBytes: number;
}

/** Reads the room on the file system of a folder. */
export async function readDiskRoom(folder: string): Promise<DiskRoom> {
  const { bavail, blocks, bsize } = await statfs(folder);
  return { freeBytes: bavail * bsize, sizeBytes: blocks * bsize };
}

/** Free bytes for an ordinary user on the file system of a folder. */
export async function readFreeBytes(folder: string): Promise<number> {
  return (await readDiskRoom(folder)).freeBytes;
}

/** Says whether two folders that exist lie on the same file system. */
export async function isSameDisk(folder: string, other: string): Promise<boolean> {
  const [one, two] = await Promise.all([stat(folder), stat(other)]);
  return one.dev === two.dev;
}

/**
 * Starts watching a folder that exists: `isLow` is right from the first moment on, and turns back by itself when there
 * is space again. A look that fails leaves the last answer in force.
 */
export async function startDiskWatch(folder: string, reserveBytes: number, logger: Logger): Promise<DiskWatch> {
  let low = false;
  let busyUntilMs = 0;
  async function look(): Promise<void> {
    const freeBytes = await readFreeBytes(folder);
    if (low === freeBytes < reserveBytes) return;
    low = !low;
    logger[low ? 'error' : 'info'](
      { folder, freeBytes, reserveBytes },
      low ? 'disk has come down to its reserve' : 'disk has room again',
    );
  }
  const onError = (error: unknown): void =>
    logger.warn({ folder, error: describeError(error) }, 'free space cannot be read');
  await look().catch(onError);
  const isBusy = (): boolean => performance.now() < busyUntilMs;
  const everyMs = (): number => checkEveryMs[low || isBusy() ? 'busy' : 'idle'];
  const loop = startPollLoop(look, { everyMs, onError, pausesFirst: true });
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

/** A disk, and which of some folders lie on it. */
interface DiskUsage {
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

/**
 * Detects that a process has no file descriptor left: the kernel then takes its new connections and they are closed at
 * once.
 */
export interface DescriptorWatch {
  /** Tries to open a file; what is wrong, now or a moment ago. */
  problems(): readonly Problem[];
}

/**
 * A flood takes each descriptor that comes free: what was found holds for so long, or the problem would come and go.
 */
const heldMs = 5000;
const file = fileURLToPath(import.meta.url);

function isExhausted(): boolean {
  try {
    closeSync(openSync(file, 'r'));
    return false;
  } catch (error) {
    // Anything else is about the file, not about descriptors.
    return isSystemError(error, 'EMFILE', 'ENFILE');
  }
}

/** Creates the watch of this process, which `who` names to the operator. */
export function createDescriptorWatch(who: string): DescriptorWatch {
  let exhaustedMs = Number.NEGATIVE_INFINITY;
  const problem: Problem = {
    code: 'descriptors_exhausted',
    subject: who,
    what: `${who} has no file descriptor left: it refuses new connections`,
    todo: 'End the clients that hold so many connections, or raise the limit on open files (ulimit -n) and start again; it goes on by itself as soon as there is room.',
  };
  return {
    problems() {
      if (isExhausted()) exhaustedMs = performance.now();
      return performance.now() - exhaustedMs < heldMs ? [problem] : [];
    },
  };
}
