import { createHash, randomFillSync } from 'node:crypto';
import { importMethods, type ImportMethod } from '../datasets/event-kinds.ts';

/** Ids of one request's events, by the event's place in it. */
export type EventIds = (index: number) => string;

/** A request with an Idempotency-Key, as far as its ids are made from it. */
export interface KeyedRequest {
  readonly idApp: number;
  readonly key: string;
  readonly method: ImportMethod;
  /** Every event as its client gave it, in one form whatever the order and notation. */
  readonly given: readonly string[];
}

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

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/**
 * Makes ids for a request with an Idempotency-Key: UUIDv8 in the layout of model/event-id.ts. A retry of the request has
 * the same ids, and the compactor commits such an id once; another request under the key has another fingerprint, in all
 * its ids, whichever events the two share.
 */
export function keyedEventIds({ idApp, key, method, given }: KeyedRequest): EventIds {
  const identity = sha256(`${idApp}\n0\n${key}`).slice(0, 20);
  // A single event has the id that earlier versions gave it: its retry is known also when the service was upgraded meanwhile.
  if (!importMethods[method].batch) {
    const fingerprint = sha256(given.join('\n')).slice(0, 12);
    return () => formatUuid(`${identity}${fingerprint}`, '8');
  }
  const fingerprint = sha256([method, ...given].join('\n')).slice(0, 10);
  return (index) => formatUuid(`${identity}${fingerprint}${index.toString(16).padStart(2, '0')}`, '8');
}
