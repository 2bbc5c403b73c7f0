import { AppError, isAppError } from '../../src/runtime/errors.ts';
import type { Lock } from '../../src/runtime/lock.ts';
import { retry } from '../../src/runtime/retry.ts';
import { activeWorld, type Process } from './world.ts';

const held = new Map<string, Process | undefined>();

/** The double of `acquireLock`: the kernel's flock(2), which ends with the process that holds it. */
export function acquireLock(folder: string, holder: string): Lock {
  if (held.has(folder)) throw new AppError('locked', `${folder} is in use`, { hint: `${holder} has to wait` });
  const owner = activeWorld()?.current();
  held.set(folder, owner);
  const release = (): void => {
    owner?.onEnd.delete(release);
    held.delete(folder);
  };
  owner?.onEnd.add(release);
  return { fd: -1, assertHeld: () => undefined, release };
}

/** The double of `isLocked`. */
export function isLocked(folder: string): boolean {
  return held.has(folder);
}

/** The double of `waitForLock`. */
export function waitForLock(folder: string, holder: string, waitMs: number): Promise<Lock> {
  return retry(async () => acquireLock(folder, holder), { forMs: waitMs, everyMs: 100, retryable: (error) => isAppError(error, 'locked') });
}
