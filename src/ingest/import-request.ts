import type { IncomingMessage } from 'node:http';
import { gunzipSync } from 'node:zlib';
import type { App } from '../access/access.ts';
import { getKind, getMethod, importKinds, importMethods } from '../datasets/dataset.ts';
import { eventFields } from '../datasets/event-fields.ts';
import { keyedEventIds, ownKeyEventIds, plainEventIds, type EventIds, type KeyMask } from '../datasets/event-id.ts';
import type { EventKind, ImportMethod } from '../datasets/field-schema.ts';
import { renderEvent, renderGiven, renderLines } from '../datasets/event-line.ts';
import { renderPlainEvents, type PlainEvents } from '../datasets/plain-event.ts';
import { parseEventJson, validateEvent, type GivenFields, type Violation } from '../datasets/schema-registry.ts';
import { isSystemError } from '../runtime/errors.ts';
import { describeJsonFault } from './json-fault.ts';
import { maxBatchEvents, maxBodyBytes, maxKeyLength, findMissingIdentity } from './required-ids.ts';
import type { Refusal } from './refusal.ts';

/** An import request whose body has come in whole and whose token suits its app. */
export interface ImportRequest {
  readonly method: ImportMethod;
  readonly head: Pick<IncomingMessage, 'headers' | 'headersDistinct'>;
  /** The bytes as they were sent, gzip or not; their Content-Type is ignored. */
  readonly body: Buffer;
  readonly app: Pick<App, 'idApp' | 'platform'>;
  /** Unix milliseconds. */
  readonly receivedAtMs: number;
  /** The mask of the lake that the events go to. */
  readonly keyMask?: KeyMask | undefined;
}

/** What a request becomes: one line of NDJSON (event-line.ts) for each of its events. */
export interface ImportedLines {
  readonly kind: EventKind;
  /** How many events, and lines, there are. */
  readonly count: number;
  /** Parameters that no schema knows; they are ignored. */
  readonly unknownParameters: number;
  /** Their names, some of them. */
  readonly unknownNames: readonly string[];
  readonly lines: Buffer;
}

/** gzip of data that does not compress is a little larger than the data. */
const maxCompressedBytes = maxBodyBytes + 1024;

/** The refusal of a body that is too large, before or after decompression. */
export const tooLarge: Refusal = { reason: 'size', detail: `the body is larger than ${maxBodyBytes} bytes` };

/** How a body is encoded; undefined: as no client may. */
function findEncoding({ headers }: ImportRequest['head']): 'gzip' | 'identity' | undefined {
  const encoding = (headers['content-encoding'] ?? 'identity').trim().toLowerCase();
  if (encoding === 'gzip' || encoding === 'x-gzip') return 'gzip';
  return encoding === 'identity' || encoding === '' ? 'identity' : undefined;
}

/** The most bytes to read of a request's body, or why none of it is to be read. */
export function parseBodyLimit(head: ImportRequest['head']): number | Refusal {
  const encoding = findEncoding(head);
  if (encoding === undefined) return { reason: 'encoding', detail: 'Content-Encoding must be gzip or absent' };
  const limit = encoding === 'gzip' ? maxCompressedBytes : maxBodyBytes;
  return Number(head.headers['content-length'] ?? 0) > limit ? tooLarge : limit;
}

/** The body decompressed: at least one byte, at most `maxBodyBytes`. */
export function decodeBody({ head, body }: ImportRequest): Buffer | Refusal {
  const limit = parseBodyLimit(head);
  if (typeof limit !== 'number') return limit;
  if (body.length > limit) return tooLarge;
  const empty: Refusal = { reason: 'empty', detail: 'the body is empty' };
  if (body.length === 0) return empty;
  if (findEncoding(head) === 'identity') return body;
  try {
    // Small enough for the main thread: at most 10 KB come out, a bomb is cut off there.
    const decoded = gunzipSync(body, { maxOutputLength: maxBodyBytes });
    return decoded.length === 0 ? empty : decoded;
  } catch (error) {
    if (isSystemError(error, 'ERR_BUFFER_TOO_LARGE')) return tooLarge;
    return { reason: 'encoding', detail: 'the body is not valid gzip' };
  }
}

/** Skips a byte order mark. */
const utf8 = new TextDecoder('utf-8', { fatal: true });
const surrogateEscape = /\\u[dD][89a-fA-F]/;

/**
 * Says whether a text of valid JSON holds an unpaired surrogate. Valid UTF-8 has none, so only escapes can make one;
 * they are read from the text itself, which needs no walk through a value of unknown depth.
 */
function hasLoneSurrogate(json: string): boolean {
  // Nearly no text has an escape at all, which is found out at a twentieth of the cost.
  if (!json.includes('\\u') || !surrogateEscape.test(json)) return false;
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

/**
 * Parses the text of a body. Invalid UTF-8 is `Bad json`; an unpaired surrogate, in a name or a value, is a broken
 * rule. Of a repeated name the last one wins, and `__proto__` is a name like any other.
 */
function parseJson(kind: EventKind, body: Buffer): { readonly value: unknown } | Refusal {
  let text: string;
  try {
    text = utf8.decode(body);
  } catch {
    return { reason: 'json', detail: 'the body is not valid UTF-8' };
  }
  let value: unknown;
  try {
    value = parseEventJson(kind, text);
  } catch {
    // The engine's own message would repeat parts of the body.
    return { reason: 'json', detail: describeJsonFault(text) };
  }
  if (hasLoneSurrogate(text)) return { reason: 'rules', detail: 'a text holds an unpaired surrogate' };
  return { value };
}

function refuse(pointer: string, reason: string, hint?: string): Refusal {
  const meant = hint === undefined ? '' : ` (${hint})`;
  const fault = { pointer, reason, ...(hint === undefined ? {} : { hint }) };
  return { reason: 'rules', detail: `${pointer === '' ? '/' : pointer} ${reason}${meant}`, fault };
}

const isEvent = (value: unknown): value is GivenFields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** What is wrong with a value that is no event at all; undefined where it is one, good or bad. */
export function findNoEvent({ method }: Pick<ImportRequest, 'method'>, value: unknown): Violation | undefined {
  if (isEvent(value)) return undefined;
  const noEvent = { pointer: '', reason: 'must be an object' };
  const { kind, batch } = getMethod(method);
  const [other] = [...importMethods].find(([, spec]) => spec.kind === kind && spec.batch) ?? [];
  if (batch || other === undefined || !Array.isArray(value)) return noEvent;
  return { ...noEvent, hint: `an array of events goes to ${other}` };
}

/** Checks one event by itself: its schema, then who it is about. Numbers written as strings become numbers, in place. */
function findViolation(kind: EventKind, request: ImportRequest, value: unknown): Violation | undefined {
  const { platform } = request.app;
  const noEvent = findNoEvent(request, value);
  if (noEvent !== undefined) return noEvent;
  const fields = value as GivenFields;
  return validateEvent(kind, fields) ?? findMissingIdentity(kind, platform, fields);
}

const knownNames = new Map(
  [...importKinds.keys()].map((kind) => [
    kind,
    new Set(eventFields.filter((field) => field.kinds.includes(kind)).map((field) => field.name)),
  ]),
);

function countUnknown(kind: EventKind, fields: GivenFields): number {
  const known = knownNames.get(kind);
  let count = 0;
  for (const name of Object.keys(fields)) if (known?.has(name) !== true) count += 1;
  return count;
}

/** Names of a header that tells the client's developer. */
const maxUnknownNames = 10;

/** Names that no schema of the kind knows, some of them; what is no event has none. */
function listUnknown(kind: EventKind, given: readonly unknown[]): string[] {
  const known = knownNames.get(kind);
  const names = new Set<string>();
  for (const fields of given)
    for (const name of isEvent(fields) ? Object.keys(fields) : [])
      if (known?.has(name) !== true && names.size < maxUnknownNames) names.add(name);
  return [...names];
}

/** The events in a body's value, by number as many as a request may hold; none of them is looked at yet. */
function listEvents({ method }: ImportRequest, value: unknown): readonly unknown[] | Refusal {
  if (!getMethod(method).batch) return [value];
  if (!Array.isArray(value)) return refuse('', 'must be an array of events');
  if (value.length === 0) return refuse('', 'must hold at least one event');
  if (value.length > maxBatchEvents) return refuse('', `must hold at most ${maxBatchEvents} events`);
  return value as unknown[];
}

/** Events that are valid: as they were given, and rendered. */
interface ValidEvents extends PlainEvents {
  readonly given: readonly GivenFields[];
}

/** Takes events that are plainly valid, all of them, in one pass; undefined: the schemas have to judge. */
function takePlainEvents({ method, app }: ImportRequest, values: readonly unknown[]): ValidEvents | undefined {
  const { kind } = getMethod(method);
  const plain = renderPlainEvents(kind, app.platform, values);
  if (plain === undefined) return undefined;
  const given = values as readonly GivenFields[];
  for (const fields of given) if (findMissingIdentity(kind, app.platform, fields) !== undefined) return undefined;
  return { given, ...plain };
}

/** Judges events by the schemas; the first broken rule is named by a JSON pointer into the body. */
function judgeEvents(request: ImportRequest, values: readonly unknown[]): ValidEvents | Refusal {
  const { kind, batch } = getMethod(request.method);
  for (const [index, value] of values.entries()) {
    const violation = findViolation(kind, request, value);
    if (violation === undefined) continue;
    const { pointer, reason, hint } = violation;
    const unknownNames = listUnknown(kind, values);
    return { ...refuse(`${batch ? `/${index}` : ''}${pointer}`, reason, hint), unknownNames };
  }
  const given = values as readonly GivenFields[];
  return {
    given,
    events: given.map((fields) => renderEvent(kind, request.app.platform, fields)),
    unknownParameters: given.reduce((count, fields) => count + countUnknown(kind, fields), 0),
  };
}

/** What is wrong with a request's Idempotency-Key. */
export function findKeyFault({ headers, headersDistinct }: ImportRequest['head']): string | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  // Node joins the values of several headers, which would make a third key of two.
  if (key.includes(',') && (headersDistinct['idempotency-key']?.length ?? 0) > 1)
    return 'Idempotency-Key must be given once';
  const isGood = typeof key === 'string' && key !== '' && key.length <= maxKeyLength;
  return isGood ? undefined : `Idempotency-Key must have 1 to ${maxKeyLength} characters`;
}

/**
 * How event ids are made for a request: from each event's own key where its kind has one, else from the request's
 * Idempotency-Key when it has one.
 */
function chooseIds(request: ImportRequest, kind: EventKind, given: readonly GivenFields[]): EventIds | Refusal {
  const { method, head, app, receivedAtMs } = request;
  const key = head.headers['idempotency-key'];
  const hasOwnKey = getKind(kind).key.length > 0;
  const plain = (): EventIds => (hasOwnKey ? ownKeyEventIds(kind, app.idApp, given) : plainEventIds(receivedAtMs));
  if (key === undefined) return plain();
  const keyFault = findKeyFault(head);
  if (keyFault !== undefined) return { reason: 'rules', detail: keyFault };
  if (hasOwnKey || typeof key !== 'string') return plain();
  const texts = given.map((fields) => renderGiven(kind, app.platform, fields));
  return keyedEventIds({ idApp: app.idApp, key, method, given: texts, mask: request.keyMask });
}

/** Reads a request's body as events; none of them is looked at yet. */
export function readEvents(request: ImportRequest): readonly unknown[] | Refusal {
  const body = decodeBody(request);
  if ('reason' in body) return body;
  const parsed = parseJson(getMethod(request.method).kind, body);
  return 'reason' in parsed ? parsed : listEvents(request, parsed.value);
}

/**
 * Turns a request's body into the lines that are published, all of its events or none: decompressed, read as UTF-8 and
 * JSON, validated, given ids, rendered anew from the validated fields. The first thing that is wrong is the refusal.
 * Touches nothing but its argument; without an Idempotency-Key the ids are random.
 */
export function parseImportRequest(request: ImportRequest): ImportedLines | Refusal {
  const { app, receivedAtMs } = request;
  const { kind } = getMethod(request.method);
  const values = readEvents(request);
  if ('reason' in values) return values;
  const valid = takePlainEvents(request, values) ?? judgeEvents(request, values);
  if ('reason' in valid) return valid;
  const { given, events, unknownParameters } = valid;
  const ids = chooseIds(request, kind, given);
  if (typeof ids !== 'function') return ids;
  const lines = Buffer.from(renderLines({ kind, idApp: app.idApp, receivedAtMs, ids }, events));
  const unknownNames = unknownParameters === 0 ? [] : listUnknown(kind, given);
  return { kind, count: given.length, unknownParameters, unknownNames, lines };
}
