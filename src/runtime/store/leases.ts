/**
 * Leases: at most one holder per name, among all processes that use a store.
 *
 * In: `leases/NAME.json`. Only its holder rewrites it, with a new nonce each time, so that its tag changes too.
 * Out: the holder's work, with a check to call before each commit, and a signal that aborts when the lease is lost.
 * Invariant: at most one process passes `assertHeld()` at any moment. A holder relies on a lease for two thirds of the
 * lease time, from before its last successful write. Another process may replace the object when its tag was the same
 * for the lease time, from after the first read. Both use their monotonic clock: clocks of hosts are never compared.
 * Limit: a process may be stopped just after the check, and a suspended machine may stop its clock. So a lease saves
 * work only; a commit or a create must refuse what may not happen twice.
 * Crash: the object stays. Another process replaces it after the lease time, with the next epoch.
 *
 * On one machine, the locks of folders take the place of leases (object-lock.ts).
 */
import { randomUUID } from 'node:crypto';
import { monotonicClock, type MonotonicClock } from '../clock.ts';
import { AppError, isAppError, isTransient } from '../errors.ts';
import { createLeaseObjects, startHolding, type HeldLease, type Lease, type LeaseRecord } from './held-lease.ts';
import type { ObjectStore } from './object-store.ts';
import { createWriteObserver, isWriterAlive } from './watch.ts';

interface HoldOptions {
  /** Ends the wait for the lease with its reason. The work has to watch it too. */
  readonly signal?: AbortSignal;
  /** Time to wait for the lease, ms; infinite by default. */
  readonly waitMs?: number;
  /** Called when the wait begins, and when its cause changes: `locked`, which names the holder, or a store's error. */
  readonly onWaiting?: (cause: Error) => void;
}

/** Elects holders. Names consist of letters, digits, `_` and `-`. A process may hold many leases, but each one once. */
export interface Leases {
  /**
   * Runs work with a lease once it is free, and releases the lease when the work has settled. The result is that of the
   * work, also if the lease was lost meanwhile. Errors before the work: `locked`, those of the store.
   */
  hold<T>(name: string, work: (lease: Lease) => Promise<T>, options?: HoldOptions): Promise<T>;
  /** Runs work with a lease if it is free; returns undefined otherwise. Repeated calls replace a silent holder too. */
  tryHold<T>(name: string, work: (lease: Lease) => Promise<T>): Promise<T | undefined>;
  /** Lists the leases in the store. */
  list(): Promise<readonly LeaseState[]>;
  /** Removes leases from the store whose work has ended on all hosts. The next epoch of their names is 1. */
  remove(names: readonly string[]): Promise<void>;
}

export interface LeaseState extends Pick<LeaseRecord, 'holder' | 'host' | 'epoch'> {
  readonly name: string;
  /** Undefined until this process has observed the lease for long enough: half of the lease time shows a holder. */
  readonly isHeld: boolean | undefined;
}

export interface LeaseOptions {
  /** The process, for people: `the compactor on web-1`. */
  readonly holder: string;
  /** Id of the host (hosts.ts). */
  readonly host?: string;
  /** Time after which a silent holder is replaced, ms, at least 3. Hosts may have different settings. */
  readonly leaseMs: number;
  readonly clock?: MonotonicClock;
}

/** Longest interval between attempts to take a lease, ms. */
const maxPollMs = 500;

const lockedBy = (name: string, holder: string): AppError =>
  new AppError('locked', `the lease ${name} is held by ${holder}`, { hint: 'Wait for that one, or stop it.' });

async function run<T>(held: HeldLease, work: (lease: Lease) => Promise<T>): Promise<T> {
  try {
    return await work(held.lease);
  } finally {
    await held.end();
  }
}

/** Creates the waits from one attempt to take a lease. Errors of an attempt: `locked`, the store's. */
function createHolds(clock: MonotonicClock, pollMs: number, take: (name: string) => Promise<HeldLease>) {
  async function takeFree(name: string, { signal, waitMs = Infinity, onWaiting }: HoldOptions): Promise<HeldLease> {
    const deadlineMs = clock.nowMs() + waitMs;
    for (let reported = ''; ;) {
      signal?.throwIfAborted();
      try {
        return await take(name);
      } catch (error) {
        if (!(error instanceof Error) || !isTransient(error) || clock.nowMs() + pollMs > deadlineMs) throw error;
        if (error.message !== reported) onWaiting?.(error);
        reported = error.message;
      }
      await clock.pause(pollMs, signal);
    }
  }

  return {
    hold: async (name, work, options = {}) => await run(await takeFree(name, options), work),
    async tryHold(name, work) {
      const held = await take(name).catch((error: unknown) => {
        if (!isAppError(error, 'locked')) throw error;
      });
      return held === undefined ? undefined : await run(held, work);
    },
  } satisfies Pick<Leases, 'hold' | 'tryHold'>;
}

/** Creates the leases of a process in a store that hosts share. */
export function createLeases(
  store: ObjectStore,
  { holder, host, leaseMs, clock = monotonicClock }: LeaseOptions,
): Leases {
  const objects = createLeaseObjects(store);
  const observer = createWriteObserver(clock);
  const self = { holder, ...(host === undefined ? {} : { host }), leaseMs };

  async function take(name: string): Promise<HeldLease> {
    if (!/^[\w-]+$/.test(name)) throw new Error(`${name} is not a valid name of a lease`);
    const found = await objects.find(name);
    const isFree = found === undefined || found.record.isReleased === true;
    if (!isFree && observer.observe(name, found.tag).unchangedMs < found.record.leaseMs)
      throw lockedBy(name, found.record.holder);
    const id = randomUUID();
    const record = { ...self, epoch: (found?.record.epoch ?? 0) + 1, nonce: `${id}.1` };
    const takenMs = clock.nowMs();
    if ((await objects.write(name, record, found?.tag)) === 'conflict') throw lockedBy(name, 'another process');
    const held = startHolding(objects, { name, id, record, takenMs }, clock);
    if (!held.lease.lost.aborted) return held;
    // The store responded too late.
    await held.end();
    throw held.lease.lost.reason;
  }

  async function read(name: string): Promise<readonly LeaseState[]> {
    const found = await objects.find(name);
    if (found === undefined) return [];
    const { holder: theirs, host: their, epoch, leaseMs: theirMs, isReleased } = found.record;
    const seen = observer.observe(name, found.tag);
    const isHeld = isReleased === true ? false : isWriterAlive(seen, theirMs);
    return [{ name, holder: theirs, ...(their === undefined ? {} : { host: their }), epoch, isHeld }];
  }

  return {
    ...createHolds(clock, Math.min(maxPollMs, leaseMs / 6), take),
    async list() {
      const names = await objects.names();
      observer.retain(names);
      return (await Promise.all(names.map(read))).flat();
    },
    remove: (names) => objects.remove(names),
  };
}
