/**
 * Event ids are UUID text of 36 characters. Version 7: made at random, unique. Version 8: derived from a request with an
 * Idempotency-Key, so that a retry of the request has the same ids:
 *
 *   characters 1 to 24   the key: 74 bits of a hash of app and Idempotency-Key, the same for every event of the request
 *   characters 25 to 34  the fingerprint: 40 bits of a hash of the request, that is its method and every event as given
 *   characters 35 to 36  the event's place in the request
 *
 * Two different requests share a key by chance once in 2^74 pairs, and then the second is kept as failed; a key used for
 * another request passes for a retry once in 2^40 times. Before version 0.3 the first part was made for each event of a
 * batch, and the rest was a hash of that event alone: the id of a single event was what it is today.
 */
const keyEnd = 24;
const fingerprintEnd = 34;

/** Says whether an event id was derived from an Idempotency-Key. */
export function isKeyedId(eventId: string): boolean {
  return eventId.charAt(14) === '8';
}

/** The part of a keyed id that stands for app and Idempotency-Key: the same for every request under that key. */
export function requestKeyOf(eventId: string): string {
  return eventId.slice(0, keyEnd);
}

/** The part of a keyed id that stands for the request: the same key with another fingerprint is a key used again for another request. */
export function fingerprintOf(eventId: string): string {
  return eventId.slice(keyEnd, fingerprintEnd);
}

/** SQL of `isKeyedId`, of a column of event ids. */
export const isKeyedSql = (column: string): string => `substr(${column}, 15, 1) = '8'`;

/** SQL of `requestKeyOf`, of a column of event ids, as a UUID: 16 bytes instead of 24. NULL where the text is no id. */
export const requestKeySql = (column: string): string => `TRY_CAST(substr(${column}, 1, ${keyEnd}) || '000000000000' AS UUID)`;

/** SQL of `fingerprintOf`, as a number. */
export const fingerprintSql = (column: string): string => `TRY_CAST('0x' || substr(${column}, ${keyEnd + 1}, ${fingerprintEnd - keyEnd}) AS BIGINT)`;

/** SQL of what tells the events of one request apart, as a number. */
export const placeSql = (column: string): string => `TRY_CAST('0x' || substr(${column}, ${fingerprintEnd + 1}) AS SMALLINT)`;
