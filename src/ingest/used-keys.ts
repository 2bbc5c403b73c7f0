import { isKeyedId, keyWindowMs } from '../datasets/event-id.ts';

/**
 * The Idempotency-Keys that this process has lately passed on, and a fingerprint of the request that each stands for. By
 * it a key that is reused for another request is refused before its events are in the stream, where only the compactor
 * would notice.
 *
 * The memory is bounded: four keys share a bucket, the oldest gives way. A key that it has lost, or that another worker
 * has passed on, is judged by the compactor alone. Two keys count as one by chance once in 2^72 pairs.
 */
export interface UsedKeys {
  /** Reports whether the key of an event id stands for another request than the id is of. */
  isOfOther(eventId: string, receivedAtMs: number): boolean;
  /** Remembers the request of an event id, unless its key stands for one already; reports whether it did. */
  claim(eventId: string, receivedAtMs: number): boolean;
  /** Forgets the request of an event id: it was surely not stored. */
  release(eventId: string): void;
}

const keysInBucket = 4;
/** Keys that are remembered: 24 bytes each, 3 MiB. */
const defaultKeys = 2 ** 17;
/** Where the id of the first event stands in the lines of a request, behind `{"event_id":"`. */
const idStart = 13;
const idEnd = idStart + 36;

/** Returns the id of a request's first event; undefined where it was sent without an Idempotency-Key. */
export function findKeyedId(lines: Buffer): string | undefined {
  const eventId = lines.toString('latin1', idStart, idEnd);
  return isKeyedId(eventId) ? eventId : undefined;
}

const readHex = (text: string): number => Number.parseInt(text, 16);

/** Creates the memory of one process, empty. `keys`: a power of two. */
export function createUsedKeys(keys = defaultKeys): UsedKeys {
  const [heads, tails] = [new Uint32Array(keys), new Float64Array(keys)];
  const prints = new Uint32Array(keys);
  const times = new Float64Array(keys).fill(-Infinity);

  /** The bucket, and what is stored of the key and of the request. */
  function read(eventId: string) {
    const head = readHex(eventId.slice(0, 8));
    const tail = readHex(eventId.slice(9, 13) + eventId.slice(15, 18) + eventId.slice(20, 23));
    const print = readHex(eventId.slice(24, 32));
    return { first: (tail % (keys / keysInBucket)) * keysInBucket, head, tail, print };
  }

  /** The place of a key that stands for a request at a time; -1: it stands for none. */
  function findPlace({ first, head, tail }: ReturnType<typeof read>, receivedAtMs: number): number {
    for (let at = first; at < first + keysInBucket; at += 1)
      if (heads[at] === head && tails[at] === tail && receivedAtMs - (times[at] ?? 0) <= keyWindowMs) return at;
    return -1;
  }

  return {
    isOfOther(eventId, receivedAtMs) {
      const key = read(eventId);
      const at = findPlace(key, receivedAtMs);
      return at !== -1 && prints[at] !== key.print;
    },
    claim(eventId, receivedAtMs) {
      const key = read(eventId);
      if (findPlace(key, receivedAtMs) !== -1) return false;
      let at = key.first;
      for (let other = at; other < key.first + keysInBucket; other += 1)
        if ((times[other] ?? 0) < (times[at] ?? 0)) at = other;
      heads[at] = key.head;
      tails[at] = key.tail;
      prints[at] = key.print;
      times[at] = receivedAtMs;
      return true;
    },
    release(eventId) {
      const key = read(eventId);
      const at = findPlace(key, -Infinity);
      if (at !== -1 && prints[at] === key.print) times[at] = -Infinity;
    },
  };
}
