import { statSync } from 'node:fs';
import { AppError, isAppError } from '../../src/runtime/errors.ts';
import type { Lock } from '../../src/runtime/files/lock.ts';
import { retry } from '../../src/runtime/async/retry.ts';
import { activeWorld, type Process } from './world.ts';

const held = new Map<string, Process | undefined>();

/** The double of `acquireLock`: the kernel's flock(2), which ends with the process that holds it. */
export function acquireLock(folder: string, holder: string): Lock {
  const owner = activeWorld()?.current();
  // A process that was killed before this call continues in JavaScript.
  if (held.has(folder) || owner?.dead === true)
    throw new AppError('locked', `${folder} is in use`, { hint: `${holder} has to wait` });
  activeWorld()?.touch(folder);
  held.set(folder, owner);
  const release = (): void => {
    owner?.onEnd.delete(release);
    if (held.get(folder) === owner) held.delete(folder);
  };
  owner?.onEnd.add(release);
  return { fd: -1, assertHeld: () => undefined, release };
}

/** The double of `isLocked`. */
export function isLocked(folder: string): boolean {
  return held.has(folder);
}

/** The double of `waitForLock`. */
export function waitForLock(folder: string, holder: string, waitMs = 120_000): Promise<Lock> {
  return retry(async () => acquireLock(folder, holder), {
    forMs: waitMs,
    everyMs: 100,
    retryable: (error) => isAppError(error, 'locked'),
  });
}

/** Removes the locks of a process without notice, as a file server does after a lease has expired. */
export function loseLocks(process: Process): void {
  for (const [folder, owner] of held) if (owner === process) held.delete(folder);
}

/** Removes the lock files, as an operator who considers them stale; the lock on a folder has no file. */
export function removeLockFiles(): void {
  for (const file of held.keys())
    if (statSync(file, { throwIfNoEntry: false })?.isDirectory() !== true) held.delete(file);
}
