import { pause } from '../async/retry.ts';
import { isAppError } from '../errors.ts';
import { acquireLock, waitForLock, type Lock } from '../files/lock.ts';
import type { Lease } from './held-lease.ts';
import type { Leases } from './leases.ts';
import { findLeases } from './open-store.ts';

/**
 * Excludes other processes from work on the objects below a folder: those of this machine by the lock of the folder,
 * and, if the objects are in a store that hosts share, those of other hosts by a lease.
 */
export interface ObjectLock {
  /** Throws `folder_lost` or `lease_lost`. To be called just before each commit. */
  assertHeld(): void;
  /** Aborts when a lease is lost. */
  readonly lost: AbortSignal;
  release(): Promise<void>;
}

export interface ObjectLockOptions {
  /** Name of the lease; undefined: only processes of this machine are excluded. */
  readonly lease?: string;
  /** Names this process in errors of others. */
  readonly holder: string;
  readonly onUnnamed?: (error: unknown) => void;
}

/** Interval between reads of a lease, until it is known whether it is held, ms. */
const pollMs = 500;
/** Changes of a table take seconds: a command waits this long for another one, ms. */
const usualWaitMs = 120_000;

interface Taken {
  readonly lease: Lease;
  readonly release: () => Promise<void>;
}

/** Acquires a lease until `release`. Errors: `locked`, those of the store. */
async function takeLease(leases: Leases, name: string, waitMs: number): Promise<Taken> {
  return await new Promise((resolve, reject) => {
    const holding: Promise<void> = leases.hold(
      name,
      (lease) =>
        new Promise<void>((end) => {
          const release = async (): Promise<void> => {
            end();
            await holding;
          };
          resolve({ lease, release });
        }),
      { waitMs },
    );
    holding.catch(reject);
  });
}

async function addLease(
  lock: Lock,
  leases: Leases | undefined,
  name: string | undefined,
  waitMs: number,
): Promise<ObjectLock> {
  if (leases === undefined || name === undefined) {
    const lost = new AbortController().signal;
    return { assertHeld: () => lock.assertHeld(), lost, release: async () => lock.release() };
  }
  try {
    const { lease, release } = await takeLease(leases, name, waitMs);
    return {
      assertHeld() {
        lock.assertHeld();
        lease.assertHeld();
      },
      lost: lease.lost,
      async release() {
        await release();
        lock.release();
      },
    };
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** Locks the objects below a folder, which is created if it is missing; waits for another holder. Error: `locked`. */
export async function lockObjects(
  folder: string,
  { lease, holder }: ObjectLockOptions,
  waitMs = usualWaitMs,
): Promise<ObjectLock> {
  return await addLease(await waitForLock(folder, holder, waitMs), findLeases(folder), lease, waitMs);
}

/** Locks the objects below a folder; undefined if another process has locked them. */
export async function tryLockObjects(
  folder: string,
  { lease, holder, onUnnamed }: ObjectLockOptions,
): Promise<ObjectLock | undefined> {
  try {
    return await addLease(acquireLock(folder, holder, onUnnamed), findLeases(folder), lease, 0);
  } catch (error) {
    if (isAppError(error, 'locked')) return undefined;
    throw error;
  }
}

/** Reports whether another host holds a lease of the objects below a folder. Waits until that is known. */
export async function isLeaseHeld(folder: string, name: string): Promise<boolean> {
  const leases = findLeases(folder);
  if (leases === undefined) return false;
  for (;;) {
    const found = (await leases.list()).find((lease) => lease.name === name);
    if (found?.isHeld !== undefined) return found.isHeld;
    if (found === undefined) return false;
    await pause(pollMs);
  }
}
