import { isUtf8 } from 'node:buffer';
import { importKinds } from './dataset.ts';
import { columnFields, eventColumns } from './event-fields.ts';
import type { EventIds } from './event-id.ts';
import { platforms, type EventKind, type Platform, toColumn, type Column } from './field-schema.ts';
import type { InputFields } from './schema-registry.ts';
import { isRecord } from '../runtime/files/checksummed-json.ts';

/**
 * An event in the stream and the spool: a line of NDJSON whose keys are columns of its table. After these five come the
 * imported fields by column name: strings and numbers as in JSON; 64-bit values (sezam_user_id, hwid) and decimals
 * (total) as strings of digits; custom_event_params as an object of strings. The compactor adds the other columns.
 */
export interface EventLine {
  readonly event_id: string;
  readonly kind: EventKind;
  readonly id_app: number;
  readonly event_time: number;
  readonly received_at: number;
  readonly [column: string]: unknown;
}

const ownColumns = ['event_id', 'kind', 'id_app', 'event_time', 'received_at'];

export const lineColumns: readonly Column[] = [
  ...eventColumns.filter(({ name }) => ownColumns.includes(name)),
  ...columnFields.map(({ name, schema }) => toColumn(name, schema)),
];
const columnNames = new Set(lineColumns.map(({ name }) => name));

interface PlannedField {
  readonly name: string;
  /** Column name as rendered, `,"column":`. */
  readonly label: string;
  /** Label and default value; empty without a default. */
  readonly fallback: string;
  readonly isSixtyFourBit: boolean;
  readonly isUserId: boolean;
}

/** Plans the line of a kind on a platform. Common defaults apply always, those of a platform only there. */
export function planFields(kind: EventKind, platform: Platform): readonly PlannedField[] {
  return columnFields
    .filter((field) => field.kinds.includes(kind))
    .map(({ name, schema }) => {
      const label = `,${JSON.stringify(schema['x-column'])}:`;
      const hasDefault = schema.default !== undefined && schema['x-platforms']?.includes(platform) !== false;
      return {
        name,
        label,
        fallback: hasDefault ? `${label}${schema.default}` : '',
        isSixtyFourBit: schema['x-column-type'] === 'BIGINT' || schema['x-column-type'] === 'DECIMAL(20,0)',
        isUserId: userIds.includes(name),
      };
    });
}

/** Fields of user ids. Device ids are never empty. */
const userIds = ['customUserId', 'customPlatformUserId'];

const plans = new Map(
  [...importKinds.keys()].map((kind) => [
    kind,
    new Map(platforms.map((platform) => [platform, planFields(kind, platform)])),
  ]),
);

function storedValue(value: unknown, field: PlannedField): unknown {
  // Normalizes leading zeros and minus zero.
  return field.isSixtyFourBit ? BigInt(value as string | number).toString() : value;
}

export interface LineContext {
  readonly kind: EventKind;
  readonly idApp: number;
  readonly receivedAtMs: number;
  readonly ids: EventIds;
}

/** Sorts the entries of a map: a retry may have another order. Returns other values unchanged. */
export function sortedEntries(value: unknown): unknown {
  return typeof value === 'object' && value !== null
    ? Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))
    : value;
}

/** Renders an event in canonical form: a retry gives the same text. */
export function renderCanonicalInput(kind: EventKind, platform: Platform, fields: InputFields): string {
  const plan = plans.get(kind)?.get(platform) ?? [];
  const given = plan
    .filter((field) => fields[field.name] !== undefined)
    .map((field) => [field.name, sortedEntries(storedValue(fields[field.name], field))]);
  return JSON.stringify([kind, fields['eventTimestamp'] ?? null, given]);
}

export interface RenderedEvent {
  /** Unix seconds; undefined: the time of receipt. */
  readonly time: number | undefined;
  /** `,"column":value` of every field that has one, as JSON. */
  readonly members: string;
}

/**
 * Renders the members of a validated event: known fields by column name in schema order, with defaults, without empty
 * user ids. Never contains the client's bytes. Concatenation: building an object first takes a quarter longer.
 */
export function renderEvent(kind: EventKind, platform: Platform, fields: InputFields): RenderedEvent {
  const plan = plans.get(kind)?.get(platform) ?? [];
  let members = '';
  for (const field of plan) {
    const value = fields[field.name];
    const isAbsent = value === undefined || (value === '' && field.isUserId);
    members += isAbsent ? field.fallback : field.label + JSON.stringify(storedValue(value, field));
  }
  return { time: fields['eventTimestamp'] as number | undefined, members };
}

/** Renders the lines of a request's events, each with its newline. */
export function renderLines(context: LineContext, events: readonly RenderedEvent[]): string {
  const { kind, idApp, receivedAtMs, ids } = context;
  const behindId = `","kind":"${kind}","id_app":${idApp},"event_time":`;
  const receivedAt = `,"received_at":${receivedAtMs}`;
  const now = Math.floor(receivedAtMs / 1000);
  let lines = '';
  for (const [index, { time, members }] of events.entries())
    lines += `{"event_id":"${ids(index)}${behindId}${time ?? now}${receivedAt}${members}}\n`;
  return lines;
}

const renderedHead =
  /^\{"event_id":"(?<eventId>[0-9a-f-]{36})","kind":"(?<kind>\w+)","id_app":(?<idApp>\d{1,16}),"event_time":(?<time>\d{1,12}),"received_at":(?<receivedAt>\d{1,15})[,}]/;

/** Members of an event's line. Times are Unix ms. */
export interface EventHead {
  readonly eventId: string;
  readonly kind?: string | undefined;
  readonly idApp?: number | undefined;
  readonly eventTimeMs?: number | undefined;
  readonly receivedAtMs?: number | undefined;
}

/** Reads the head of a rendered line, also if the rest is damaged; undefined otherwise. */
export function readLineHead(line: string) {
  const { eventId, kind, idApp, time, receivedAt } = renderedHead.exec(line)?.groups ?? {};
  if (eventId === undefined || kind === undefined) return undefined;
  return { eventId, kind, idApp: Number(idApp), eventTimeMs: Number(time) * 1000, receivedAtMs: Number(receivedAt) };
}

/** Reads the head of any line, also if it is damaged after a rendered head; undefined without an id. */
export function readEventHead(line: string): EventHead | undefined {
  let event: unknown;
  try {
    event = JSON.parse(line);
  } catch {
    return readLineHead(line);
  }
  if (!isRecord(event)) return undefined;
  const { event_id: eventId, kind, id_app: idApp, event_time: seconds, received_at: receivedAtMs } = event;
  if (typeof eventId !== 'string') return undefined;
  return {
    eventId,
    kind: typeof kind === 'string' ? kind : undefined,
    idApp: typeof idApp === 'number' ? idApp : undefined,
    eventTimeMs: typeof seconds === 'number' ? seconds * 1000 : undefined,
    receivedAtMs: typeof receivedAtMs === 'number' ? receivedAtMs : undefined,
  };
}

function isStringMap(value: unknown): boolean {
  return (
    isRecord(value) &&
    Object.entries(value).every(
      ([name, text]) => name.isWellFormed() && typeof text === 'string' && text.isWellFormed(),
    )
  );
}

/** Checks a line individually: returns it with known members only, or the reason why DuckDB could not read it. */
export function parseLine(line: Buffer): { readonly text: string } | { readonly reason: 'bad_json' | 'bad_value' } {
  if (!isUtf8(line)) return { reason: 'bad_json' };
  let value: unknown;
  try {
    value = JSON.parse(line.toString('utf8'));
  } catch {
    return { reason: 'bad_json' };
  }
  if (!isRecord(value)) return { reason: 'bad_json' };
  const members = Object.entries(value).filter(([name, member]) => columnNames.has(name) && member !== null);
  // No column takes fractions or booleans, and JSON.parse rounds larger integers.
  const good = members.every(([name, member]) =>
    name === 'custom_event_params'
      ? isStringMap(member)
      : typeof member === 'string'
        ? member.isWellFormed()
        : Number.isSafeInteger(member),
  );
  return good ? { text: JSON.stringify(Object.fromEntries(members)) } : { reason: 'bad_value' };
}
