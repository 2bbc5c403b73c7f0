import { isUtf8 } from 'node:buffer';
import { importKinds } from './dataset.ts';
import { columnFields, eventColumns } from './event-fields.ts';
import type { EventIds } from './event-id.ts';
import { platforms, type EventKind, type Platform, toColumn, type Column } from './field-schema.ts';
import type { GivenFields } from './schema-registry.ts';
import { isRecord } from '../runtime/files/checked-json.ts';

/**
 * One event as it travels in the stream and the spool: a line of NDJSON whose keys are column names of the table that
 * its kind is stored in. Beside these five, every imported field under its column name: strings as JSON strings,
 * numbers as JSON numbers, 64-bit values (sezam_user_id, hwid) and decimals (total) as strings of digits,
 * custom_event_params as an object of strings. The other columns are added by the compactor.
 */
export interface EventLine {
  /**
   * UUID text, 36 characters. Version 7: unique. Version 8: derived from an Idempotency-Key. Version 5: derived from
   * the event's own key (see event-id.ts).
   */
  readonly event_id: string;
  readonly kind: EventKind;
  readonly id_app: number;
  /** Unix seconds. */
  readonly event_time: number;
  /** Unix milliseconds. */
  readonly received_at: number;
  readonly [column: string]: unknown;
}

const ownColumns = ['event_id', 'kind', 'id_app', 'event_time', 'received_at'];

/** Columns that travel in an event line, of every kind. */
export const lineColumns: readonly Column[] = [
  ...eventColumns.filter(({ name }) => ownColumns.includes(name)),
  ...columnFields.map(({ name, schema }) => toColumn(name, schema)),
];
const columnNames = new Set(lineColumns.map(({ name }) => name));

interface PlannedField {
  readonly name: string;
  /** The column's name as it stands in the line, `,"column":`. */
  readonly label: string;
  /** Label and value of an event whose client does not say; empty without a default. */
  readonly fallback: string;
  readonly isSixtyFourBit: boolean;
  /** It names a user: an empty text names nobody, and is as good as absent. */
  readonly isUserId: boolean;
}

/**
 * What goes into a line for a kind on a platform. service.md's defaults: the common ones always, a platform's own only
 * there.
 */
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

/**
 * The text fields that say which user an event is about. A device's have a length of their own, and are never empty.
 */
const userIds = ['customUserId', 'customPlatformUserId'];

const plans = new Map(
  [...importKinds.keys()].map((kind) => [
    kind,
    new Map(platforms.map((platform) => [platform, planFields(kind, platform)])),
  ]),
);

function storedValue(value: unknown, field: PlannedField): unknown {
  // Digits, without the leading zeros and minus zero that a client may write.
  return field.isSixtyFourBit ? BigInt(value as string | number).toString() : value;
}

/** Who sent the events of a request, to which method, and when. */
export interface LineContext {
  readonly kind: EventKind;
  readonly idApp: number;
  readonly receivedAtMs: number;
  readonly ids: EventIds;
}

/** A map as its sorted entries, because it may come in another order when its client tries again; else the value. */
export function sortedEntries(value: unknown): unknown {
  return typeof value === 'object' && value !== null
    ? Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))
    : value;
}

/** What the client gave, in one form whatever the order and notation, so that a retry gives the same text. */
export function renderGiven(kind: EventKind, platform: Platform, fields: GivenFields): string {
  const plan = plans.get(kind)?.get(platform) ?? [];
  const given = plan
    .filter((field) => fields[field.name] !== undefined)
    .map((field) => [field.name, sortedEntries(storedValue(fields[field.name], field))]);
  return JSON.stringify([kind, fields['eventTimestamp'] ?? null, given]);
}

/** One event as it stands in its line behind the service's own members. */
export interface RenderedEvent {
  /** Unix seconds; undefined: its client does not say, it happened when it was received. */
  readonly time: number | undefined;
  /** `,"column":value` of every field that has one, as JSON. */
  readonly members: string;
}

/**
 * Renders the members of one validated event: known fields only, under their column names, in the schema's order,
 * defaults filled in, an empty user id left out. They are made anew from the values and never hold the client's own
 * bytes. They are put together as text: building an object first, of keys not known beforehand, takes a quarter longer.
 */
export function renderEvent(kind: EventKind, platform: Platform, fields: GivenFields): RenderedEvent {
  const plan = plans.get(kind)?.get(platform) ?? [];
  let members = '';
  for (const field of plan) {
    const value = fields[field.name];
    const isAbsent = value === undefined || (value === '' && field.isUserId);
    members += isAbsent ? field.fallback : field.label + JSON.stringify(storedValue(value, field));
  }
  return { time: fields['eventTimestamp'] as number | undefined, members };
}

/** Renders the lines of a request's events (EventLine), each with its newline. */
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

/** What a line begins with, as it is rendered. */
const renderedHead =
  /^\{"event_id":"(?<eventId>[0-9a-f-]{36})","kind":"(?<kind>\w+)","id_app":(?<idApp>\d{1,16}),"event_time":(?<time>\d{1,12}),"received_at":(?<receivedAt>\d{1,15})[,}]/;

/** What a line says of its event: whose it is and when it came. Times are Unix milliseconds. */
interface LineHead {
  readonly eventId: string;
  readonly kind: string;
  readonly idApp: number;
  readonly eventTimeMs: number;
  readonly receivedAtMs: number;
}

/** Reads the head of a line as ingest has rendered it, also of one whose rest is damaged; undefined: it is none. */
export function readLineHead(line: string): LineHead | undefined {
  const { eventId, kind, idApp, time, receivedAt } = renderedHead.exec(line)?.groups ?? {};
  if (eventId === undefined || kind === undefined) return undefined;
  return { eventId, kind, idApp: Number(idApp), eventTimeMs: Number(time) * 1000, receivedAtMs: Number(receivedAt) };
}

function isStringMap(value: unknown): boolean {
  return (
    isRecord(value) &&
    Object.entries(value).every(
      ([name, text]) => name.isWellFormed() && typeof text === 'string' && text.isWellFormed(),
    )
  );
}

/** Checks a line by itself: the same line with known members only, or the reason why DuckDB could not read it. */
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
  // No column takes a fraction or a boolean, and a larger integer would have lost digits in JSON.parse.
  const good = members.every(([name, member]) =>
    name === 'custom_event_params'
      ? isStringMap(member)
      : typeof member === 'string'
        ? member.isWellFormed()
        : Number.isSafeInteger(member),
  );
  return good ? { text: JSON.stringify(Object.fromEntries(members)) } : { reason: 'bad_value' };
}
