import { createHash, randomFillSync } from 'node:crypto';

/** Ids of one request's events, by the event's place in it; `given` renders the fields that the client gave. */
export type EventIds = (index: number, given: () => string) => string;

const poolBytes = 4096;
const pool = Buffer.allocUnsafe(poolBytes);
let poolPosition = poolBytes;

/** Ten random bytes as hex; the generator is asked for many at a time. */
function randomHex(): string {
  if (poolPosition + 10 > poolBytes) {
    randomFillSync(pool);
    poolPosition = 0;
  }
  poolPosition += 10;
  return pool.toString('hex', poolPosition - 10, poolPosition);
}

/** Writes hex digits as a UUID: fixes the version and the variant, which take the 13th digit and two bits of the 17th. */
function formatUuid(hex: string, version: '7' | '8'): string {
  const variant = '89ab'.charAt(Number.parseInt(hex.charAt(16), 16) & 3);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${version}${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** Makes ids for a plain request: UUIDv7, the receiving time in front, so that they sort by it. */
export function plainEventIds(receivedAtMs: number): EventIds {
  const time = receivedAtMs.toString(16).padStart(12, '0');
  return () => formatUuid(`${time}${randomHex()}`, '7');
}

/**
 * Makes ids for a request with an Idempotency-Key: UUIDv8. The first four groups (74 bits of a hash) are the identity,
 * made from the app, the key and the place in the request: a retry has the same ones, and the compactor commits such an
 * identity once. The last group is a fingerprint of the kind and the fields given, so that a key used again for another
 * event can be told from a retry.
 */
export function keyedEventIds(idApp: number, key: string): EventIds {
  return (index, given) => {
    const identity = createHash('sha256').update(`${idApp}\n${index}\n${key}`).digest('hex').slice(0, 20);
    const fingerprint = createHash('sha256').update(given()).digest('hex').slice(0, 12);
    return formatUuid(`${identity}${fingerprint}`, '8');
  };
}
