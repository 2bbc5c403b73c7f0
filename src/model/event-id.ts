/**
 * Event ids are UUID text. Version 7: made at random, unique. Version 8: derived from an Idempotency-Key, so that a retry
 * of the request has the same ids; its last 12 hex digits are a fingerprint of the event's body, the rest is made from
 * the app, the key and the event's place in the request.
 */
const fingerprintStart = 24;

/** Says whether an event id was derived from an Idempotency-Key. */
export function isKeyedId(eventId: string): boolean {
  return eventId.charAt(14) === '8';
}

/** The part of a keyed id that is the same for every event under the same key: two of them are one event, or a key reused. */
export function dedupeKeyOf(eventId: string): string {
  return eventId.slice(0, fingerprintStart);
}

/** The part of a keyed id that tells the body: the same key with another fingerprint is a key reused for another event. */
export function fingerprintOf(eventId: string): string {
  return eventId.slice(fingerprintStart);
}
