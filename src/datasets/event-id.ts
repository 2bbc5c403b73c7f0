import { createHash, randomFillSync } from 'node:crypto';
import { getKind, getMethod, importKinds } from './dataset.ts';
import type { EventKind, ImportMethod } from './field-schema.ts';
import type { InputFields } from './schema-registry.ts';

/**
 * Event ids are UUID text of 36 characters. Version 7: random and unique. Version 5: a hash of the natural key,
 * independent of request and time. Version 8: derived from a request with an Idempotency-Key, so that a retry has the
 * same ids:
 *
 * - characters 1 to 24: key, 74 bits of a hash of app and Idempotency-Key, the same for every event of the request; its
 * first 48 bits are XORed with the mask of the lake, so that another lake has other ids
 * - characters 25 to 34: fingerprint, 40 bits of a hash of the request: its method and every event as given
 * - characters 35 to 36: index of the event in the request
 *
 * Two requests share a key by chance once in 2^74 pairs; the second then becomes a failed event. Another request under
 * the key passes for a retry once in 2^40 times. Before 0.3 the first part was made per event of a batch, and the rest
 * was a hash of that event alone. Before 0.4 ids had no mask: XOR converts between both forms, which the compactor
 * treats as one.
 */
const keyDigits = 20;
const fingerprintDigits = 10;
/** A request has at most 256 events. */
const placeDigits = 2;
/** The four dashes of a UUID are in or right after the key. */
const keyEnd = keyDigits + 4;
const fingerprintEnd = keyEnd + fingerprintDigits;

/** Validity of an Idempotency-Key, ms: from the receipt of the first stored request to the receipt of the duplicate. */
export const keyWindowMs = 24 * 3600 * 1000;

export function isKeyedId(eventId: string): boolean {
  return eventId.charAt(14) === '8';
}

export function requestKeyOf(eventId: string): string {
  return eventId.slice(0, keyEnd);
}

export function fingerprintOf(eventId: string): string {
  return eventId.slice(keyEnd, fingerprintEnd);
}

const ownId = /^[0-9a-f]{8}-[0-9a-f]{4}-[578][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

export function isOwnId(text: string): boolean {
  return ownId.test(text);
}

export function isUuid(text: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text);
}

/** Returns the time of receipt in an id of version 7, Unix ms; undefined for others. */
export function receivedAtOf(eventId: string): number | undefined {
  return eventId.charAt(14) === '7' ? Number.parseInt(eventId.slice(0, 8) + eventId.slice(9, 13), 16) : undefined;
}

/** True for an id without its time of receipt. */
export const isHashedSql = (column: string): string => `substr(${column}, 15, 1) IN ('5', '8')`;

export const isKeyedSql = (column: string): string => `substr(${column}, 15, 1) = '8'`;

export const requestKeyType = 'DECIMAL(38,0)';

/** SQL of `requestKeyOf` as a number, the lesser of the forms with and without mask; NULL if it is not an id. */
export function requestKeySql(column: string, mask: KeyMask): string {
  const hex = (...parts: readonly (readonly [from: number, length: number])[]): string =>
    `'0x' || ${parts.map(([from, length]) => `substr(${column}, ${from}, ${length})`).join(' || ')}`;
  const head = `TRY_CAST(${hex([1, 8], [10, 4])} AS UBIGINT)`;
  const tail = `TRY_CAST(${hex([16, 3], [20, 4])} AS UINTEGER)`;
  return `(least(${head}, xor(${head}, ${mask}::UBIGINT))::HUGEINT * ${2 ** 28} + ${tail})::${requestKeyType}`;
}

export const fingerprintSql = (column: string): string =>
  `TRY_CAST('0x' || substr(${column}, ${keyEnd + 1}, ${fingerprintEnd - keyEnd}) AS BIGINT)`;

export const requestIndexSql = (column: string): string =>
  `TRY_CAST('0x' || substr(${column}, ${fingerprintEnd + 1}) AS SMALLINT)`;

export type EventIds = (index: number) => string;

export interface KeyedRequest {
  readonly idApp: number;
  readonly key: string;
  readonly method: ImportMethod;
  readonly eventTexts: readonly string[];
  readonly mask?: KeyMask | undefined;
}

/** Distinguishes the keys of lakes: 48 bits of a hash of the lake's id; 0: no lake. */
export type KeyMask = number;
const maskDigits = 12;

export function maskOfLake(lakeId: string | undefined): KeyMask {
  return lakeId === undefined ? 0 : Number.parseInt(sha256(`keys of ${lakeId}`).slice(0, maskDigits), 16);
}

/** XORs twelve digits with a mask; JavaScript XORs at most 32 bits. */
function xorDigits(digits: string, mask: KeyMask): string {
  const half = 2 ** 24;
  const xor = (from: number, with24: number): string =>
    (half + (Number.parseInt(digits.slice(from, from + 6), 16) ^ with24)).toString(16).slice(1);
  return xor(0, Math.floor(mask / half)) + xor(6, mask % half);
}

/** Converts a keyed id between the forms with and without the mask. */
export function otherFormOf(eventId: string, mask: KeyMask): string {
  const digits = xorDigits(eventId.slice(0, 8) + eventId.slice(9, 13), mask);
  return `${digits.slice(0, 8)}-${digits.slice(8)}${eventId.slice(13)}`;
}

const pool = Buffer.allocUnsafe(4096);
let poolDigits = '';
let poolPosition = 0;

function randomHex(): string {
  if (poolPosition + 20 > poolDigits.length) {
    poolDigits = randomFillSync(pool).toString('hex');
    poolPosition = 0;
  }
  poolPosition += 20;
  return poolDigits.slice(poolPosition - 20, poolPosition);
}

/** Formats hex digits as a UUID; version and variant replace the 13th digit and two bits of the 17th. */
function formatUuid(hex: string, version: '5' | '7' | '8'): string {
  const variant = '89ab'.charAt(Number.parseInt(hex.charAt(16), 16) & 3);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${version}${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** Makes UUIDv7 ids, which sort by time of receipt. */
export function timeOrderedEventIds(receivedAtMs: number): EventIds {
  const time = receivedAtMs.toString(16).padStart(12, '0');
  return () => formatUuid(`${time}${randomHex()}`, '7');
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

function keyIdentity(idApp: number, key: string, mask: KeyMask): string {
  const digits = sha256(`${idApp}\n0\n${key}`).slice(0, keyDigits);
  return mask === 0 ? digits : xorDigits(digits, mask) + digits.slice(maskDigits);
}

/** Returns the result of `requestKeyOf` for all ids under an Idempotency-Key, with and without the mask. */
export function makeRequestKeys(idApp: number, key: string, mask: KeyMask): readonly string[] {
  const make = (one: KeyMask): string => requestKeyOf(formatUuid(keyIdentity(idApp, key, one).padEnd(32, '0'), '8'));
  return mask === 0 ? [make(0)] : [make(mask), make(0)];
}

/** Removes the white space that HTTP ignores around a header: not all of Unicode's. */
function trimHeader(value: string): string {
  const isSpace = (at: number): boolean => value[at] === ' ' || value[at] === '\t';
  let [from, to] = [0, value.length];
  while (from < to && isSpace(from)) from += 1;
  while (to > from && isSpace(to - 1)) to -= 1;
  return value.slice(from, to);
}

/**
 * Returns the Idempotency-Keys that import may have received for a text. Node decodes header bytes as Latin-1: some
 * clients send UTF-8 (curl), others Latin-1 if possible (fetch).
 */
export function readKeyTexts(told: string): readonly string[] {
  const utf8 = Buffer.from(told).toString('latin1');
  const texts = Buffer.from(told, 'latin1').toString('latin1') === told ? [utf8, told] : [utf8];
  return [...new Set(texts.map(trimHeader))];
}

/**
 * Makes UUIDv8 ids in the layout above. A retry has the same ids, which the compactor stores once; another request
 * under the key differs in all its ids, even if it shares events.
 */
export function keyedEventIds({ idApp, key, method, eventTexts, mask = 0 }: KeyedRequest): EventIds {
  const identity = keyIdentity(idApp, key, mask);
  // As in earlier versions, except for the mask: retries across an upgrade are recognized.
  if (!getMethod(method).batch) {
    const fingerprint = sha256(eventTexts.join('\n')).slice(0, fingerprintDigits + placeDigits);
    return () => formatUuid(`${identity}${fingerprint}`, '8');
  }
  const fingerprint = sha256([method, ...eventTexts].join('\n')).slice(0, fingerprintDigits);
  return (index) => formatUuid(`${identity}${fingerprint}${index.toString(16).padStart(placeDigits, '0')}`, '8');
}

/** Makes ids of natural keys, a hash of kind, app and key. Two keys of an app collide once in 2^121 pairs. */
export function naturalKeyEventIds(kind: EventKind, idApp: number, given: readonly InputFields[]): EventIds {
  const { key } = getKind(kind);
  return (index) =>
    formatUuid(sha256(JSON.stringify([kind, idApp, ...key.map((name) => given[index]?.[name] ?? null)])), '5');
}

/** Fields that identify an event of an app permanently, with the function that makes its id. */
export const naturalKeyFields: ReadonlyMap<string, (idApp: number, value: string) => string> = new Map(
  [...importKinds].flatMap(
    ([
      kind,
      {
        key: [field, ...more],
      },
    ]) =>
      field === undefined || more.length > 0
        ? []
        : [
            [
              field,
              (idApp: number, value: string) => naturalKeyEventIds(kind, idApp, [{ [field]: value }])(0),
            ] as const,
          ],
  ),
);
