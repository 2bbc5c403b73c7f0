import type { IncomingMessage } from 'node:http';
import { gunzipSync } from 'node:zlib';
import type { App } from '../access/access.ts';
import { getKind, getMethod, importKinds, importMethods } from '../datasets/dataset.ts';
import { eventFields } from '../datasets/event-fields.ts';
import {
  keyedEventIds,
  naturalKeyEventIds,
  timeOrderedEventIds,
  type EventIds,
  type KeyMask,
} from '../datasets/event-id.ts';
import type { EventKind, ImportMethod } from '../datasets/field-schema.ts';
import { renderEvent, renderCanonicalInput, renderLines } from '../datasets/event-line.ts';
import { renderEventsFast, type FastRenderedEvents } from '../datasets/fast-event-renderer.ts';
import { parseEventJson, validateEvent, type InputFields, type SchemaError } from '../datasets/schema-registry.ts';
import { isSystemError } from '../runtime/errors.ts';
import { describeJsonError } from './json-error.ts';
import { maxBatchEvents, maxBodyBytes, maxKeyLength, findMissingIdentity } from './required-ids.ts';
import type { Refusal } from './refusal.ts';

/** An import request with a complete body, whose token matches its app. */
export interface ImportRequest {
  readonly method: ImportMethod;
  readonly head: Pick<IncomingMessage, 'headers' | 'headersDistinct'>;
  /** As sent, gzip or not; the Content-Type is ignored. */
  readonly body: Buffer;
  readonly app: Pick<App, 'idApp' | 'platform'>;
  readonly receivedAtMs: number;
  /** The mask of the lake that the events go to. */
  readonly keyMask?: KeyMask | undefined;
}

/** A request as lines of NDJSON (event-line.ts), one per event. */
export interface ImportedLines {
  readonly kind: EventKind;
  /** Number of events, and of lines. */
  readonly count: number;
  /** Number of ignored parameters, which no schema knows. */
  readonly unknownParameters: number;
  /** Some of their names. */
  readonly unknownNames: readonly string[];
  readonly lines: Buffer;
}

/** Gzip of data that does not compress is a little larger. */
const maxCompressedBytes = maxBodyBytes + 1024;

export const tooLarge: Refusal = { reason: 'size', detail: `the body is larger than ${maxBodyBytes} bytes` };

/** Returns the encoding of a body; undefined if it is not allowed. */
function findEncoding({ headers }: ImportRequest['head']): 'gzip' | 'identity' | undefined {
  const encoding = (headers['content-encoding'] ?? 'identity').trim().toLowerCase();
  if (encoding === 'gzip' || encoding === 'x-gzip') return 'gzip';
  return encoding === 'identity' || encoding === '' ? 'identity' : undefined;
}

/** Returns the most bytes to read of a request's body, or why it is refused. */
export function parseBodyLimit(head: ImportRequest['head']): number | Refusal {
  const encoding = findEncoding(head);
  if (encoding === undefined) return { reason: 'encoding', detail: 'Content-Encoding must be gzip or absent' };
  const limit = encoding === 'gzip' ? maxCompressedBytes : maxBodyBytes;
  return Number(head.headers['content-length'] ?? 0) > limit ? tooLarge : limit;
}

/** Decompresses a body to 1 to `maxBodyBytes` bytes. */
export function decodeBody({ head, body }: ImportRequest): Buffer | Refusal {
  const limit = parseBodyLimit(head);
  if (typeof limit !== 'number') return limit;
  if (body.length > limit) return tooLarge;
  const empty: Refusal = { reason: 'empty', detail: 'the body is empty' };
  if (body.length === 0) return empty;
  if (findEncoding(head) === 'identity') return body;
  try {
    // On the main thread: at most 10 KB come out, also of a bomb.
    const decoded = gunzipSync(body, { maxOutputLength: maxBodyBytes });
    return decoded.length === 0 ? empty : decoded;
  } catch (error) {
    if (isSystemError(error, 'ERR_BUFFER_TOO_LARGE')) return tooLarge;
    return { reason: 'encoding', detail: 'the body is not valid gzip' };
  }
}

/** Decodes UTF-8, without a byte order mark. */
const utf8 = new TextDecoder('utf-8', { fatal: true });
const surrogateEscape = /\\u[dD][89a-fA-F]/;

/** Reports whether valid JSON has an unpaired surrogate, which only escapes can make: the text is scanned. */
function hasLoneSurrogate(json: string): boolean {
  // Nearly no text has an escape: this check takes a twentieth of the time.
  if (!json.includes('\\u') || !surrogateEscape.test(json)) return false;
  let highEndsAt = -1;
  for (const escape of json.matchAll(/\\(?:u([0-9a-fA-F]{4})|[^u])/g)) {
    const unit = escape[1] === undefined ? 0 : Number.parseInt(escape[1], 16);
    const isLow = unit >= 0xdc00 && unit <= 0xdfff;
    if (isLow !== (highEndsAt === escape.index)) return true;
    highEndsAt = unit >= 0xd800 && unit <= 0xdbff ? escape.index + escape[0].length : -1;
    // A high surrogate without an escape right after it is unpaired.
    if (highEndsAt !== -1 && json.charCodeAt(highEndsAt) !== 0x5c) return true;
  }
  return false;
}

/** Parses a body. Invalid UTF-8 is `Bad json`; an unpaired surrogate breaks a rule. The last of repeated names wins. */
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
    // The engine's message would repeat parts of the body.
    return { reason: 'json', detail: describeJsonError(text) };
  }
  if (hasLoneSurrogate(text)) return { reason: 'rules', detail: 'a string has an unpaired surrogate' };
  return { value };
}

function refuse(pointer: string, reason: string, hint?: string): Refusal {
  const meant = hint === undefined ? '' : ` (${hint})`;
  const validationError = { pointer, reason, ...(hint === undefined ? {} : { hint }) };
  return { reason: 'rules', detail: `${pointer === '' ? '/' : pointer} ${reason}${meant}`, validationError };
}

/** Reports whether a value is an event, valid or not. */
export const isEvent = (value: unknown): value is InputFields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Returns why a value is not an event. */
export function describeNonEvent({ method }: Pick<ImportRequest, 'method'>, value: unknown): SchemaError {
  const noEvent = { pointer: '', reason: 'must be an object' };
  const { kind, batch } = getMethod(method);
  const [other] = [...importMethods].find(([, spec]) => spec.kind === kind && spec.batch) ?? [];
  if (batch || other === undefined || !Array.isArray(value)) return noEvent;
  return { ...noEvent, hint: `an array of events goes to ${other}` };
}

/** Checks the schema and the identity of an event. Numbers written as strings become numbers, in place. */
function findViolation(kind: EventKind, request: ImportRequest, value: unknown): SchemaError | undefined {
  const { platform } = request.app;
  if (!isEvent(value)) return describeNonEvent(request, value);
  return validateEvent(kind, value) ?? findMissingIdentity(kind, platform, value);
}

const knownNames = new Map(
  [...importKinds.keys()].map((kind) => [
    kind,
    new Set(eventFields.filter((field) => field.kinds.includes(kind)).map((field) => field.name)),
  ]),
);

function listUnknown(kind: EventKind, given: readonly unknown[]): string[] {
  const known = knownNames.get(kind);
  return given.flatMap((fields) =>
    isEvent(fields) ? Object.keys(fields).filter((name) => known?.has(name) !== true) : [],
  );
}

/** Limits the names in the header for the client's developer. */
const maxUnknownNames = 10;
const showUnknown = (names: readonly string[]): string[] => [...new Set(names)].slice(0, maxUnknownNames);

function listEvents({ method }: ImportRequest, value: unknown): readonly unknown[] | Refusal {
  if (!getMethod(method).batch) return [value];
  if (!Array.isArray(value)) return refuse('', 'must be an array of events');
  if (value.length === 0) return refuse('', 'must have at least one event');
  if (value.length > maxBatchEvents) return refuse('', `must have at most ${maxBatchEvents} events`);
  return value;
}

/** Valid events, as given and rendered. */
interface ValidEvents extends FastRenderedEvents {
  readonly inputs: readonly InputFields[];
}

/** Checks and renders plainly valid events in one pass; undefined if the schemas have to decide. */
function parsePlainEvents({ method, app }: ImportRequest, values: readonly unknown[]): ValidEvents | undefined {
  const { kind } = getMethod(method);
  const plain = renderEventsFast(kind, app.platform, values);
  if (plain === undefined) return undefined;
  const inputs = values as readonly InputFields[];
  for (const fields of inputs) if (findMissingIdentity(kind, app.platform, fields) !== undefined) return undefined;
  return { inputs, ...plain };
}

/** Checks events by the schemas; the first broken rule is named by a JSON pointer into the body. */
function judgeEvents(request: ImportRequest, values: readonly unknown[]): ValidEvents | Refusal {
  const { kind, batch } = getMethod(request.method);
  for (const [index, value] of values.entries()) {
    const schemaError = findViolation(kind, request, value);
    if (schemaError === undefined) continue;
    const { pointer, reason, hint } = schemaError;
    const unknownNames = showUnknown(listUnknown(kind, values));
    return { ...refuse(`${batch ? `/${index}` : ''}${pointer}`, reason, hint), unknownNames };
  }
  const inputs = values.filter(isEvent);
  return {
    inputs,
    events: inputs.map((fields) => renderEvent(kind, request.app.platform, fields)),
    unknownParameters: listUnknown(kind, inputs).length,
  };
}

/** Returns the fault of a request's Idempotency-Key. */
export function findKeyError({ headers, headersDistinct }: ImportRequest['head']): string | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  // Node joins the values of several headers, which would make another key.
  if (key.includes(',') && (headersDistinct['idempotency-key']?.length ?? 0) > 1)
    return 'Idempotency-Key must be given once';
  const isGood = typeof key === 'string' && key !== '' && key.length <= maxKeyLength;
  return isGood ? undefined : `Idempotency-Key must have 1 to ${maxKeyLength} characters`;
}

/** Returns the event ids of a request: by each event's own key if its kind has one, else by the Idempotency-Key. */
function chooseIds(request: ImportRequest, kind: EventKind, inputs: readonly InputFields[]): EventIds | Refusal {
  const { method, head, app, receivedAtMs } = request;
  const key = head.headers['idempotency-key'];
  const hasOwnKey = getKind(kind).key.length > 0;
  const plain = (): EventIds =>
    hasOwnKey ? naturalKeyEventIds(kind, app.idApp, inputs) : timeOrderedEventIds(receivedAtMs);
  if (key === undefined) return plain();
  const keyFault = findKeyError(head);
  if (keyFault !== undefined) return { reason: 'rules', detail: keyFault };
  if (hasOwnKey || typeof key !== 'string') return plain();
  const texts = inputs.map((fields) => renderCanonicalInput(kind, app.platform, fields));
  return keyedEventIds({ idApp: app.idApp, key, method, eventTexts: texts, mask: request.keyMask });
}

/** Reads a request's body as events, unchecked. */
export function readEvents(request: ImportRequest): readonly unknown[] | Refusal {
  const body = decodeBody(request);
  if ('reason' in body) return body;
  const parsed = parseJson(getMethod(request.method).kind, body);
  return 'reason' in parsed ? parsed : listEvents(request, parsed.value);
}

/**
 * Parses a body into the lines to publish, all of its events or none. Refuses with the first validation error. Ids
 * without an Idempotency-Key are random.
 */
export function parseImportRequest(request: ImportRequest): ImportedLines | Refusal {
  const { app, receivedAtMs } = request;
  const { kind } = getMethod(request.method);
  const values = readEvents(request);
  if ('reason' in values) return values;
  const valid = parsePlainEvents(request, values) ?? judgeEvents(request, values);
  if ('reason' in valid) return valid;
  const { inputs, events, unknownParameters } = valid;
  const ids = chooseIds(request, kind, inputs);
  if (typeof ids !== 'function') return ids;
  const lines = Buffer.from(renderLines({ kind, idApp: app.idApp, receivedAtMs, ids }, events));
  const unknownNames = unknownParameters === 0 ? [] : showUnknown(listUnknown(kind, inputs));
  return { kind, count: inputs.length, unknownParameters, unknownNames, lines };
}
