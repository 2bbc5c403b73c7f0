import { eventFields } from '../datasets/event-fields.ts';
import { eventKinds, platforms, type EventKind, type Platform } from '../datasets/event-kinds.ts';
import type { GivenFields } from '../datasets/schema-registry.ts';
import type { EventIds } from './event-ids.ts';

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

/** What goes into a line for a kind on a platform. service.md's defaults: the common ones always, a platform's own only there. */
function planFields(kind: EventKind, platform: Platform): readonly PlannedField[] {
  return eventFields
    .filter((field) => field.kinds.includes(kind) && field.name !== 'eventTimestamp')
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

/** The text fields that say which user an event is about. A device's have a length of their own, and are never empty. */
const userIds = ['customUserId', 'customPlatformUserId'];

const plans = new Map(eventKinds.map((kind) => [kind, new Map(platforms.map((platform) => [platform, planFields(kind, platform)]))]));

function storedValue(value: unknown, field: PlannedField): unknown {
  // Digits, without the leading zeros and minus zero that a client may write.
  return field.isSixtyFourBit ? BigInt(value as string | number).toString() : value;
}

/** Who sent the events of a request, to which method, and when. */
export interface LineContext {
  readonly kind: EventKind;
  readonly idApp: number;
  readonly platform: Platform;
  readonly receivedAtMs: number;
  readonly ids: EventIds;
}

/** Sorted, because a client's map may come in another order when it tries again. */
function sortedEntries(value: unknown): unknown {
  return typeof value === 'object' && value !== null ? Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)) : value;
}

/** What the client gave, in one form whatever the order and notation, so that a retry gives the same text. */
export function renderGiven(kind: EventKind, platform: Platform, fields: GivenFields): string {
  const plan = plans.get(kind)?.get(platform) ?? [];
  const given = plan.filter((field) => fields[field.name] !== undefined).map((field) => [field.name, sortedEntries(storedValue(fields[field.name], field))]);
  return JSON.stringify([kind, fields['eventTimestamp'] ?? null, given]);
}

/**
 * Renders one validated event as its line of NDJSON (EventLine), with the newline: known fields only, under their column
 * names, in the schema's order, defaults filled in, an empty user id left out. A line is made anew from the values and never holds the client's own
 * bytes. It is put together as text: building an object first, of keys not known beforehand, takes a quarter longer.
 */
export function renderLine(context: LineContext, fields: GivenFields, index: number): string {
  const { kind, idApp, platform, receivedAtMs } = context;
  const plan = plans.get(kind)?.get(platform) ?? [];
  const eventId = context.ids(index);
  const eventTime = (fields['eventTimestamp'] as number | undefined) ?? Math.floor(receivedAtMs / 1000);
  let line = `{"event_id":"${eventId}","kind":"${kind}","id_app":${idApp},"event_time":${eventTime},"received_at":${receivedAtMs}`;
  for (const field of plan) {
    const value = fields[field.name];
    const isAbsent = value === undefined || (value === '' && field.isUserId);
    line += isAbsent ? field.fallback : field.label + JSON.stringify(storedValue(value, field));
  }
  return `${line}}\n`;
}
