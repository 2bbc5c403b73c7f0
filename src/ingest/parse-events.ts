import type { App } from '../access/access.ts';
import { eventFields } from '../datasets/event-fields.ts';
import { eventKinds, getMethod, type EventKind, type ImportMethod } from '../datasets/event-kinds.ts';
import { validateEvent, type GivenFields, type Violation } from '../datasets/schema-registry.ts';
import { findMissingIdentity } from './required-ids.ts';
import { maxBatchEvents } from './limits.ts';
import type { Refusal } from './refusal.ts';

/** The validated events of a request, numbers read, unknown parameters still in them but counted. */
export interface ParsedEvents {
  readonly kind: EventKind;
  readonly events: readonly GivenFields[];
  readonly unknownParameters: number;
}

const knownNames = new Map(
  eventKinds.map((kind) => [
    kind,
    new Set(eventFields.filter((field) => field.kinds.includes(kind)).map((field) => field.name)),
  ]),
);

function refuse(pointer: string, reason: string): Refusal {
  return { reason: 'rules', detail: `${pointer === '' ? '/' : pointer} ${reason}` };
}

function isObject(value: unknown): value is GivenFields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function countUnknown(kind: EventKind, fields: GivenFields): number {
  const known = knownNames.get(kind);
  let count = 0;
  for (const name of Object.keys(fields)) if (known?.has(name) !== true) count += 1;
  return count;
}

/**
 * Checks one event by itself: its schema, then who it is about. Numbers written as strings become numbers, in place.
 */
function findViolation(kind: EventKind, app: App, value: unknown): Violation | undefined {
  if (!isObject(value)) return { pointer: '', reason: 'must be an object' };
  return validateEvent(kind, value) ?? findMissingIdentity(kind, app.platform, value);
}

/**
 * Turns a body's JSON value into the events of a method, all or nothing: the first broken rule refuses the request and
 * is named by a JSON pointer into the body.
 */
export function parseEvents(method: ImportMethod, app: App, value: unknown): ParsedEvents | Refusal {
  const { kind, batch } = getMethod(method);
  if (!batch) {
    const violation = findViolation(kind, app, value);
    if (violation !== undefined) return refuse(violation.pointer, violation.reason);
    const fields = value as GivenFields;
    return { kind, events: [fields], unknownParameters: countUnknown(kind, fields) };
  }

  if (!Array.isArray(value)) return refuse('', 'must be an array of events');
  if (value.length === 0) return refuse('', 'must hold at least one event');
  if (value.length > maxBatchEvents) return refuse('', `must hold at most ${maxBatchEvents} events`);
  const elements: unknown[] = value;
  for (const [index, element] of elements.entries()) {
    const violation = findViolation(kind, app, element);
    if (violation !== undefined) return refuse(`/${index}${violation.pointer}`, violation.reason);
  }
  const events = elements as GivenFields[];
  return { kind, events, unknownParameters: events.reduce((count, fields) => count + countUnknown(kind, fields), 0) };
}
