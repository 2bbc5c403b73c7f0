import type { MonotonicClock } from '../clock.ts';
import { AppError } from '../errors.ts';
import type { ObjectStore, Tag } from './object-store.ts';
import { createRecords, jsonCodec, type RecordKind } from './records.ts';
import { isFlag, isId, isText, optional, shapeOf } from './shape.ts';

/** A lease as its holder has it: its object (leases.ts has the protocol), renewed until the end. */
export interface Lease {
  /** Greater than that of each earlier holder. */
  readonly epoch: number;
  /** Aborts when the lease is lost, with `lease_lost`: the work must end. */
  readonly lost: AbortSignal;
  /** Throws `lease_lost`. To be called just before each commit. */
  readonly assertHeld: () => void;
}

export interface HeldLease {
  readonly lease: Lease;
  /** Releases the lease if it is still that of this holder. Never throws. */
  end(): Promise<void>;
}

export interface LeaseRecord {
  readonly holder: string;
  readonly host?: string;
  readonly epoch: number;
  /** Id of the holding, a dot, and the number of the write. */
  readonly nonce: string;
  readonly leaseMs: number;
  readonly isReleased?: boolean;
}

const kind: RecordKind<LeaseRecord> = {
  isValid: shapeOf<LeaseRecord>({
    holder: isText,
    host: optional(isText),
    epoch: isId,
    nonce: isText,
    leaseMs: isId,
    isReleased: optional(isFlag),
  }),
  damaged: { code: 'record_damaged', hint: 'Remove it. Its holder then loses the lease.' },
};
const prefix = 'leases/';
const keyOf = (name: string): string => `${prefix}${name}.json`;
/** Delay before a renewal is repeated after an error, ms. */
const retryMs = 500;

export type LeaseObjects = ReturnType<typeof createLeaseObjects>;

export function createLeaseObjects(store: ObjectStore) {
  const records = createRecords(store, kind);
  return {
    async find(name: string): Promise<{ readonly record: LeaseRecord; readonly tag: Tag } | undefined> {
      const found = await store.get(keyOf(name));
      return found === undefined ? undefined : { record: records.parse(prefix + name, found), tag: found.tag };
    },
    /** Creates a lease, or replaces one that still has `ifTag`. */
    async write(name: string, record: LeaseRecord, ifTag: Tag | undefined): Promise<Tag | 'created' | 'conflict'> {
      const bytes = Buffer.from(jsonCodec.render(record));
      if (ifTag !== undefined) return await store.replace(keyOf(name), bytes, ifTag);
      return (await store.create(keyOf(name), bytes)) === 'created' ? 'created' : 'conflict';
    },
    names: async () => (await records.ids(prefix)).map((id) => id.slice(prefix.length)),
    remove: (names: readonly string[]) => store.remove(names.map(keyOf)),
  };
}

/** Waits at most this time for work, which continues. Returns undefined if it takes longer. */
async function findWithin<T>(clock: MonotonicClock, ms: number, work: Promise<T>): Promise<T | undefined> {
  const settled = new AbortController();
  const late = clock.pause(ms, settled.signal).then(() => undefined);
  try {
    return await Promise.race([work, late]);
  } finally {
    settled.abort();
  }
}

export interface TakenLease {
  readonly name: string;
  /** The id in the nonces of the holding. */
  readonly id: string;
  readonly record: LeaseRecord;
  /** The time just before the record was written. */
  readonly takenMs: number;
}

/** Renews a lease until its end. */
export function startHolding(
  objects: LeaseObjects,
  { name, id, record, takenMs }: TakenLease,
  clock: MonotonicClock,
): HeldLease {
  const renewMs = record.leaseMs / 3;
  const validMs = 2 * renewMs;
  const [lost, ended] = [new AbortController(), new AbortController()];
  let [renewedMs, writes] = [takenMs, 1];
  /** Undefined before the first read, and while the outcome of a write is unknown. */
  let tag: Tag | undefined;
  /** Error of the last renewal. */
  let failure: unknown;

  const leftMs = (): number => renewedMs + validMs - clock.nowMs();
  const isHeld = (): boolean => !lost.signal.aborted && !ended.signal.aborted && leftMs() > 0;
  function lose(why: string): void {
    const hint = 'Check the connection to the object store. The next holder repeats the work.';
    if (lost.signal.aborted) return;
    lost.abort(new AppError('lease_lost', `the lease ${name} ${why}`, { cause: failure, hint }));
  }
  const loseLate = (): void => lose(`was not renewed for ${Math.round(validMs)} ms`);

  /**
   * Writes the object if it is still that of this holding, and returns whether it is. Returns undefined if the lease is
   * not held any more: a late renewal must not undo the release. Calls may overlap.
   */
  async function rewrite(isReleased = false): Promise<boolean | undefined> {
    for (;;) {
      const startedMs = clock.nowMs();
      let ifTag = tag;
      tag = undefined;
      if (ifTag === undefined) {
        const found = await objects.find(name);
        if (found?.record.nonce.startsWith(`${id}.`) !== true) return false;
        ifTag = found.tag;
      }
      if (!isReleased && !isHeld()) return undefined;
      const result = await objects.write(name, { ...record, nonce: `${id}.${(writes += 1)}`, isReleased }, ifTag);
      if (result === 'conflict' || result === 'created') continue;
      [tag, renewedMs, failure] = [result, Math.max(renewedMs, startedMs), undefined];
      return true;
    }
  }

  async function renew(): Promise<void> {
    for (let hasFailed = false; ;) {
      const waitMs = hasFailed ? Math.min(retryMs, renewMs / 4) : renewedMs + renewMs - clock.nowMs();
      await clock.pause(waitMs, ended.signal);
      if (!isHeld()) return;
      // One request without a response does not cost the lease.
      const renewing = rewrite().catch((error: unknown) => void (failure = error));
      const isOwn = await findWithin(clock, renewMs / 2, renewing);
      if (isOwn === false) return lose('was taken over or removed');
      hasFailed = isOwn === undefined;
    }
  }

  async function expire(): Promise<void> {
    while (isHeld()) await clock.pause(leftMs(), ended.signal);
    if (!ended.signal.aborted) loseLate();
  }

  void renew();
  void expire();
  return {
    lease: {
      epoch: record.epoch,
      lost: lost.signal,
      assertHeld() {
        if (ended.signal.aborted) lose('was released');
        else if (!isHeld()) loseLate();
        lost.signal.throwIfAborted();
      },
    },
    async end() {
      ended.abort();
      await findWithin(clock, renewMs, rewrite(true)).catch(() => undefined);
    },
  };
}
