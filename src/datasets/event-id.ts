import { createHash, randomFillSync } from 'node:crypto';
import { getKind, getMethod, importKinds } from './dataset.ts';
import type { EventKind, ImportMethod } from './field-schema.ts';
import type { GivenFields } from './schema-registry.ts';

/**
 * Event ids are UUID text of 36 characters. Version 7: made at random, unique. Version 5: a hash of the event's own key
 * (`key` of its kind), the same whoever sends it, how and when. Version 8: derived from a request with an
 * Idempotency-Key, so that a retry of the request has the same ids:
 *
 * characters 1 to 24 the key: 74 bits of a hash of app and Idempotency-Key, the same for every event of the request;
 *   the first 48 of them are XORed with the mask of the lake, so that another lake has other ids
 * characters 25 to 34 the fingerprint: 40 bits of a hash of the request, that is its method and every event as given
 * characters 35 to 36 the event's place in the request
 *
 * Two different requests share a key by chance once in 2^74 pairs, and then the second is kept as failed; a key used
 * for another request passes for a retry once in 2^40 times. Before version 0.3 the first part was made for each event
 * of a batch, and the rest was a hash of that event alone. Before version 0.4 there was no mask: of an id with it, XOR
 * gives the id without, and the compactor takes the two for one.
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

/** Says whether a text is a UUID in small letters: the id of an event, or of something else. */
export function isUuid(text: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text);
}

/** When the event of a plain id was received, Unix milliseconds; undefined: the id is a hash, and does not say it. */
export function receivedAtOf(eventId: string): number | undefined {
  return eventId.charAt(14) === '7' ? Number.parseInt(eventId.slice(0, 8) + eventId.slice(9, 13), 16) : undefined;
}

/** SQL that is true for an id that does not say when its event was received. */
export const isHashedSql = (column: string): string => `substr(${column}, 15, 1) IN ('5', '8')`;

/** SQL of `isKeyedId`, of a column of event ids. */
export const isKeyedSql = (column: string): string => `substr(${column}, 15, 1) = '8'`;

/** SQL type of `requestKeySql`. */
export const requestKeyType = 'DECIMAL(38,0)';

/**
 * SQL of `requestKeyOf`, of a column of event ids, as a number. With and without the mask an id has the same: of the
 * two forms of its first digits the lesser counts. NULL where the text is no id.
 */
export function requestKeySql(column: string, mask: KeyMask): string {
  const hex = (...parts: readonly (readonly [from: number, length: number])[]): string =>
    `'0x' || ${parts.map(([from, length]) => `substr(${column}, ${from}, ${length})`).join(' || ')}`;
  const head = `TRY_CAST(${hex([1, 8], [10, 4])} AS UBIGINT)`;
  const tail = `TRY_CAST(${hex([16, 3], [20, 4])} AS UINTEGER)`;
  return `(least(${head}, xor(${head}, ${mask}::UBIGINT))::HUGEINT * ${2 ** 28} + ${tail})::${requestKeyType}`;
}

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
  readonly mask?: KeyMask | undefined;
}

/** What makes the keys of one lake differ from those of another: 48 bits of a hash of its id. 0: no lake is known. */
export type KeyMask = number;
const maskDigits = 12;

/** Returns the mask of a lake by its id; 0 where there is none. */
export function maskOfLake(lakeId: string | undefined): KeyMask {
  return lakeId === undefined ? 0 : Number.parseInt(sha256(`keys of ${lakeId}`).slice(0, maskDigits), 16);
}

/** XORs twelve digits with a mask; numbers of more than 32 bits have no XOR of their own. */
function xorDigits(digits: string, mask: KeyMask): string {
  const half = 2 ** 24;
  const xor = (from: number, with24: number): string =>
    (half + (Number.parseInt(digits.slice(from, from + 6), 16) ^ with24)).toString(16).slice(1);
  return xor(0, Math.floor(mask / half)) + xor(6, mask % half);
}

/** Returns the other form of a keyed id: without the mask of a lake that it has, or with it. */
export function otherFormOf(eventId: string, mask: KeyMask): string {
  const digits = xorDigits(eventId.slice(0, 8) + eventId.slice(9, 13), mask);
  return `${digits.slice(0, 8)}-${digits.slice(8)}${eventId.slice(13)}`;
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
function keyIdentity(idApp: number, key: string, mask: KeyMask): string {
  const digits = sha256(`${idApp}\n0\n${key}`).slice(0, keyDigits);
  return mask === 0 ? digits : xorDigits(digits, mask) + digits.slice(maskDigits);
}

/**
 * Returns what `requestKeyOf` gives for the ids of any request of an app under an Idempotency-Key: as this version makes
 * them, and without the mask.
 */
export function makeRequestKeys(idApp: number, key: string, mask: KeyMask): readonly string[] {
  const make = (one: KeyMask): string => requestKeyOf(formatUuid(keyIdentity(idApp, key, one).padEnd(32, '0'), '8'));
  return mask === 0 ? [make(0)] : [make(mask), make(0)];
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
export function keyedEventIds({ idApp, key, method, given, mask = 0 }: KeyedRequest): EventIds {
  const identity = keyIdentity(idApp, key, mask);
  // But for the mask, a single event has the id that earlier versions gave it: its retry is known also when the service
  // was upgraded meanwhile.
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
