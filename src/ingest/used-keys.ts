import { keyWindowMs } from '../datasets/event-id.ts';

/** A use of an Idempotency-Key: 76 bits that stand for app and key, 32 that stand for the request. */
export interface KeyUse {
  readonly head: number;
  readonly tail: number;
  readonly print: number;
}

const keysInBucket = 4;
/** Number of remembered keys: 24 bytes each, 3 MiB. */
const defaultKeys = 2 ** 17;
/** Offset of the first event's id in the lines of a request, after `{"event_id":"`. */
const idStart = 13;
/** Offset of that id's version: 8 under an Idempotency-Key. */
const versionAt = idStart + 14;

const readHex = (text: string): number => Number.parseInt(text, 16);

/** Reads the use of a key from the id of a request's first event; undefined without a key. */
export function findKeyUse(lines: Buffer): KeyUse | undefined {
  // Nearly all requests have no key: they cost one byte comparison.
  if (lines[versionAt] !== 0x38) return undefined;
  const eventId = lines.toString('latin1', idStart, idStart + 32);
  return {
    head: readHex(eventId.slice(0, 8)),
    tail: readHex(eventId.slice(9, 13) + eventId.slice(15, 18) + eventId.slice(20, 23)),
    print: readHex(eventId.slice(24)),
  };
}

/**
 * Creates the record of recently published Idempotency-Keys with a fingerprint of their requests, to reject a key that
 * is reused for another request. Bounded: four keys share a bucket, whose oldest is replaced; the compactor checks the
 * rest. Two keys collide once in 2^72 pairs. `keys`: a power of two.
 */
export function createUsedKeys(keys = defaultKeys) {
  const [heads, tails] = [new Uint32Array(keys), new Float64Array(keys)];
  const prints = new Uint32Array(keys);
  const times = new Float64Array(keys).fill(-Infinity);

  const firstOf = ({ tail }: KeyUse): number => (tail % (keys / keysInBucket)) * keysInBucket;

  /** Returns the place of a key that stands for a request at a time; -1 without one. */
  function findPlace(use: KeyUse, receivedAtMs: number): number {
    const first = firstOf(use);
    for (let at = first; at < first + keysInBucket; at += 1)
      if (heads[at] === use.head && tails[at] === use.tail && receivedAtMs - (times[at] ?? 0) <= keyWindowMs) return at;
    return -1;
  }

  return {
    /** Reports whether the key stands for another request. */
    isOfOther(use: KeyUse, receivedAtMs: number): boolean {
      const at = findPlace(use, receivedAtMs);
      return at !== -1 && prints[at] !== use.print;
    },
    /** Records the request of a key, unless the key stands for one already; reports whether it did. */
    claim(use: KeyUse, receivedAtMs: number): boolean {
      if (findPlace(use, receivedAtMs) !== -1) return false;
      const first = firstOf(use);
      let at = first;
      for (let other = first; other < first + keysInBucket; other += 1)
        if ((times[other] ?? 0) < (times[at] ?? 0)) at = other;
      heads[at] = use.head;
      tails[at] = use.tail;
      prints[at] = use.print;
      times[at] = receivedAtMs;
      return true;
    },
    /** Forgets the request of a key that was surely not stored. */
    release(use: KeyUse): void {
      const at = findPlace(use, -Infinity);
      if (at !== -1 && prints[at] === use.print) times[at] = -Infinity;
    },
  };
}
