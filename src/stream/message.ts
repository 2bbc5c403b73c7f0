import { createHash } from 'node:crypto';

/** Ends each event line. */
export const newline = 0x0a;

/** The hash by which a message is known again, hex. */
export function hashMessage(payload: Uint8Array): string {
  return createHash('sha256').update(payload).digest('hex');
}

/**
 * A message that carries no event, only its place in the stream: whoever sees the position pass it knows that all
 * before is in the lake.
 */
export const markerPayload = Uint8Array.of(newline);

/** No event line is empty: a message that begins with an empty line is a marker, whatever follows. */
export function isMarker(payload: Uint8Array): boolean {
  return payload.length === 0 || payload[0] === newline;
}

/** Counts the event lines of a message; a marker has none. */
export function countLines(payload: Uint8Array): number {
  if (isMarker(payload)) return 0;
  // A Buffer looks for a byte several times as fast as a Uint8Array.
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.length);
  let lines = bytes.at(-1) === newline ? 0 : 1;
  for (let at = bytes.indexOf(newline); at !== -1; at = bytes.indexOf(newline, at + 1)) lines += 1;
  return lines;
}
