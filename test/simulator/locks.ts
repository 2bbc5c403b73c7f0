import { AppError, isAppError } from '../../src/runtime/errors.ts';
import type { Lock } from '../../src/runtime/lock.ts';
import { retry } from '../../src/runtime/retry.ts';
import { activeWorld, type Process } from './world.ts';

const held = new Map<string, Process | undefined>();

/** The double of `acquireLock`: the kernel's flock(2), which ends with the process that holds it. */
export function acquireLock(file: string, holder: string): Lock {
  if (held.has(file)) throw new AppError('locked', `${file} is in use`, { hint: `${holder} has to wait` });
  const owner = activeWorld()?.current();
  held.set(file, owner);
  const release = (): void => {
    owner?.onEnd.delete(release);
    held.delete(file);
  };
  owner?.onEnd.add(release);
  return { fd: -1, release };
}

/** The double of `waitForLock`. */
export function waitForLock(file: string, holder: string, waitMs: number): Promise<Lock> {
  return retry(async () => acquireLock(file, holder), { forMs: waitMs, everyMs: 100, retryable: (error) => isAppError(error, 'locked') });
}
