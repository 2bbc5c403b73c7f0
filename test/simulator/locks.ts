import { statSync } from 'node:fs';
import { AppError, isAppError } from '../../src/runtime/errors.ts';
import type { Lock } from '../../src/runtime/lock.ts';
import { retry } from '../../src/runtime/retry.ts';
import { activeWorld, type Process } from './world.ts';

interface Holder {
  readonly process: Process | undefined;
  isLost: boolean;
}

const held = new Map<string, Holder>();

/** The double of `acquireLock`: the kernel's flock(2), which ends with the process that holds it. */
export function acquireLock(file: string, holder: string): Lock {
  if (held.has(file)) throw new AppError('locked', `${file} is in use`, { hint: `${holder} has to wait` });
  activeWorld()?.touch(file);
  const process = activeWorld()?.current();
  const own: Holder = { process, isLost: false };
  held.set(file, own);
  const release = (): void => {
    process?.onEnd.delete(release);
    if (held.get(file) === own) held.delete(file);
  };
  process?.onEnd.add(release);
  return { fd: -1, release };
}

/** The double of `waitForLock`. */
export function waitForLock(file: string, holder: string, waitMs: number): Promise<Lock> {
  return retry(async () => acquireLock(file, holder), { forMs: waitMs, everyMs: 100, retryable: (error) => isAppError(error, 'locked') });
}

/** Takes the locks of a process from it without a word, as a file server does whose lease has ended. */
export function loseLocks(process: Process): void {
  for (const [file, holder] of held) {
    if (holder.process !== process) continue;
    holder.isLost = true;
    held.delete(file);
  }
}

/** Removes the lock files that are there, as whoever takes them for stale; a lock on a folder is on no file. */
export function removeLockFiles(): void {
  for (const file of held.keys()) if (statSync(file, { throwIfNoEntry: false })?.isDirectory() !== true) held.delete(file);
}
