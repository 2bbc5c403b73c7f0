import { createHash, randomFillSync } from 'node:crypto';
import { getKind, getMethod, importKinds } from './dataset.ts';
import type { EventKind, ImportMethod } from './event-kinds.ts';
import type { GivenFields } from './schema-registry.ts';

/**
 * Event ids are UUID text of 36 characters. Version 7: made at random, unique. Version 5: a hash of the event's own key
 * (`key` of its kind), the same whoever sends it, how and when. Version 8: derived from a request with an
 * Idempotency-Key, so that a retry of the request has the same ids:
 *
 * characters 1 to 24 the key: 74 bits of a hash of app and Idempotency-Key, the same for every event of the request
 * characters 25 to 34 the fingerprint: 40 bits of a hash of the request, that is its method and every event as given
 * characters 35 to 36 the event's place in the request
 *
 * Two different requests share a key by chance once in 2^74 pairs, and then the second is kept as failed; a key used
 * for another request passes for a retry once in 2^40 times. Before version 0.3 the first part was made for each event
 * of a batch, and the rest was a hash of that event alone: the id of a single event was what it is today.
 */
const keyDigits = 20;
const fingerprintDigits = 10;
/** Digits of the place; a request has at most 256 events by it. */
const placeDigits = 2;
/** The four dashes of a UUID stand within or right behind the key. */
const keyEnd = keyDigits + 4;
const fingerprintEnd = keyEnd + fingerprintDigits;

/**
 * How long an Idempotency-Key stands for its request: from the receipt of the first that was stored to the receipt of
 * the repeat.
 */
export const keyWindowMs = 24 * 3600 * 1000;

/** Says whether an event id was derived from an Idempotency-Key. */
export function isKeyedId(eventId: string): boolean {
  return eventId.charAt(14) === '8';
}

/** The part of a keyed id that stands for app and Idempotency-Key: the same for every request under that key. */
export function requestKeyOf(eventId: string): string {
  return eventId.slice(0, keyEnd);
}

/**
 * The part of a keyed id that stands for the request: the same key with another fingerprint is a key used again for
 * another request.
 */
export function fingerprintOf(eventId: string): string {
  return eventId.slice(keyEnd, fingerprintEnd);
}

/** What the service's own event ids look like: other text names no imported event. */
const ownId = /^[0-9a-f]{8}-[0-9a-f]{4}-[578][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** Says whether a text is an event id as this service makes them. */
export function isOwnId(text: string): boolean {
  return ownId.test(text);
}

/** When the event of a plain id was received, Unix milliseconds; undefined: the id is a hash, and does not say it. */
export function receivedAtOf(eventId: string): number | undefined {
  return eventId.charAt(14) === '7' ? Number.parseInt(eventId.slice(0, 8) + eventId.slice(9, 13), 16) : undefined;
}

/** SQL that is true for an id that does not say when its event was received. */
export const isHashedSql = (column: string): string => `substr(${column}, 15, 1) IN ('5', '8')`;

/** SQL of `isKeyedId`, of a column of event ids. */
export const isKeyedSql = (column: string): string => `substr(${column}, 15, 1) = '8'`;

/** SQL of `requestKeyOf`, of a column of event ids, as a UUID: 16 bytes instead of 24. NULL where the text is no id. */
export const requestKeySql = (column: string): string =>
  `TRY_CAST(substr(${column}, 1, ${keyEnd}) || '000000000000' AS UUID)`;

/** SQL of `fingerprintOf`, as a number. */
export const fingerprintSql = (column: string): string =>
  `TRY_CAST('0x' || substr(${column}, ${keyEnd + 1}, ${fingerprintEnd - keyEnd}) AS BIGINT)`;

/** SQL of what tells the events of one request apart, as a number. */
export const placeSql = (column: string): string =>
  `TRY_CAST('0x' || substr(${column}, ${fingerprintEnd + 1}) AS SMALLINT)`;

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

const pool = Buffer.allocUnsafe(4096);
let poolDigits = '';
let poolPosition = 0;

/** Ten random bytes as hex; the generator is asked for many at a time. */
function randomHex(): string {
  if (poolPosition + 20 > poolDigits.length) {
    poolDigits = randomFillSync(pool).toString('hex');
    poolPosition = 0;
  }
  poolPosition += 20;
  return poolDigits.slice(poolPosition - 20, poolPosition);
}

/**
 * Writes hex digits as a UUID: fixes the version and the variant, which take the 13th digit and two bits of the 17th.
 */
function formatUuid(hex: string, version: '5' | '7' | '8'): string {
  const variant = '89ab'.charAt(Number.parseInt(hex.charAt(16), 16) & 3);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${version}${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** Makes ids for a plain request: UUIDv7, the receiving time in front, so that they sort by it. */
export function plainEventIds(receivedAtMs: number): EventIds {
  const time = receivedAtMs.toString(16).padStart(12, '0');
  return () => formatUuid(`${time}${randomHex()}`, '7');
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** The first part of what ids are made of under a key. */
const keyIdentity = (idApp: number, key: string): string => sha256(`${idApp}\n0\n${key}`).slice(0, keyDigits);

/** What `requestKeyOf` gives for the ids of any request of an app under an Idempotency-Key. */
export function makeRequestKey(idApp: number, key: string): string {
  return requestKeyOf(formatUuid(keyIdentity(idApp, key).padEnd(32, '0'), '8'));
}

/** What HTTP leaves out around the value of a header, and nothing else: not every byte that is a space to Unicode. */
function trimHeader(value: string): string {
  const isSpace = (at: number): boolean => value[at] === ' ' || value[at] === '\t';
  let [from, to] = [0, value.length];
  while (from < to && isSpace(from)) from += 1;
  while (to > from && isSpace(to - 1)) to -= 1;
  return value.slice(from, to);
}

/**
 * The Idempotency-Keys, as import gets them, that a key told as text may stand for. A header has bytes, of which Node
 * makes a character each: some clients send UTF-8 (curl), others Latin-1 as far as it has the letters (fetch).
 */
export function readKeyTexts(told: string): readonly string[] {
  const utf8 = Buffer.from(told).toString('latin1');
  const texts = Buffer.from(told, 'latin1').toString('latin1') === told ? [utf8, told] : [utf8];
  return [...new Set(texts.map(trimHeader))];
}

/**
 * Makes ids for a request with an Idempotency-Key: UUIDv8 in the layout above. A retry of the request has the same ids,
 * and the compactor commits such an id once; another request under the key has another fingerprint, in all its ids,
 * whichever events the two share.
 */
export function keyedEventIds({ idApp, key, method, given }: KeyedRequest): EventIds {
  const identity = keyIdentity(idApp, key);
  // A single event has the id that earlier versions gave it: its retry is known also when the service was upgraded
  // meanwhile.
  if (!getMethod(method).batch) {
    const fingerprint = sha256(given.join('\n')).slice(0, fingerprintDigits + placeDigits);
    return () => formatUuid(`${identity}${fingerprint}`, '8');
  }
  const fingerprint = sha256([method, ...given].join('\n')).slice(0, fingerprintDigits);
  return (index) => formatUuid(`${identity}${fingerprint}${index.toString(16).padStart(placeDigits, '0')}`, '8');
}

/**
 * Makes the ids of events that have a key of their own, such as a transaction's: a hash of kind, app and key. Two
 * transactions of an app share one by chance once in 2^121 pairs.
 */
export function ownKeyEventIds(kind: EventKind, idApp: number, given: readonly GivenFields[]): EventIds {
  const { key } = getKind(kind);
  return (index) =>
    formatUuid(sha256(JSON.stringify([kind, idApp, ...key.map((name) => given[index]?.[name] ?? null)])), '5');
}

/**
 * The fields that by themselves identify an event of an app for ever, such as a transaction's, and what makes an
 * event's id of one.
 */
export const ownKeyFields: ReadonlyMap<string, (idApp: number, value: string) => string> = new Map(
  [...importKinds].flatMap(
    ([
      kind,
      {
        key: [field, ...more],
      },
    ]) =>
      field === undefined || more.length > 0
        ? []
        : [[field, (idApp: number, value: string) => ownKeyEventIds(kind, idApp, [{ [field]: value }])(0)] as const],
  ),
);
