import type { Refusal } from './refusal.ts';

/** A byte order mark is not part of JSON: it stays in the text, and the parser refuses it. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const surrogateEscape = /\\u[dD][89a-fA-F]/;

/**
 * Says whether a text of valid JSON holds an unpaired surrogate. Valid UTF-8 has none, so only escapes can make one;
 * they are read from the text itself, which needs no walk through a value of unknown depth.
 */
function hasLoneSurrogate(json: string): boolean {
  if (!surrogateEscape.test(json)) return false;
  let highEndsAt = -1;
  for (const escape of json.matchAll(/\\(?:u([0-9a-fA-F]{4})|[^u])/g)) {
    const unit = escape[1] === undefined ? 0 : Number.parseInt(escape[1], 16);
    const isLow = unit >= 0xdc00 && unit <= 0xdfff;
    if (isLow !== (highEndsAt === escape.index)) return true;
    highEndsAt = unit >= 0xd800 && unit <= 0xdbff ? escape.index + escape[0].length : -1;
    // A high one that no escape follows at once stays alone.
    if (highEndsAt !== -1 && json.charCodeAt(highEndsAt) !== 0x5c) return true;
  }
  return false;
}

/** What a body holds, or why it cannot be read. */
export type ParsedBody = { readonly value: unknown } | Refusal;

/**
 * Turns a body's bytes into a JSON value, whatever its Content-Type said. Invalid UTF-8 is `Bad json`; an unpaired
 * surrogate, in a name or a value, is a broken rule. Of a repeated name the last one wins, and `__proto__` is a name
 * like any other.
 */
export function parseBody(body: Buffer): ParsedBody {
  let text: string;
  try {
    text = utf8.decode(body);
  } catch {
    return { reason: 'json', detail: 'the body is not valid UTF-8' };
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // The engine's own message would repeat parts of the body.
    return { reason: 'json', detail: 'the body is not valid JSON' };
  }
  if (hasLoneSurrogate(text)) return { reason: 'rules', detail: 'a text holds an unpaired surrogate' };
  return { value };
}
