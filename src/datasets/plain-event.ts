import assert from 'node:assert/strict';
import { eventFields, eventSchemas } from './event-fields.ts';
import { planFields, type RenderedEvent } from './event-line.ts';
import { platforms, type EventKind, type Platform } from './event-kinds.ts';
import { createPlainRenderer, type PlainRenderer } from './plain-value.ts';
import type { GivenFields } from './schema-registry.ts';

interface PlainField {
  readonly label: string;
  /** Absent: no value of the field is plain. */
  readonly render: PlainRenderer | undefined;
  readonly isTime: boolean;
  /** An empty text is as good as absent. */
  readonly isUserId: boolean;
  /** Its bit among the fields that are required or have a default; 0 for the others. */
  readonly bit: number;
}

interface PlainPlan {
  readonly fields: ReadonlyMap<string, PlainField>;
  /** The bits of the required fields. */
  readonly required: number;
  readonly defaults: readonly { readonly bit: number; readonly fallback: string }[];
}

/** Keywords of a kind's schema that are no rules, or are kept here. */
const knownKeywords = new Set(['$schema', '$id', 'title', 'description', 'type', 'required', 'properties']);

/** Renderers by field: one remembers for all kinds and platforms what it has seen. */
const renderers = new Map(eventFields.map((field) => [field, createPlainRenderer(field.schema)]));

function createPlan(kind: EventKind, platform: Platform, required: readonly string[]): PlainPlan {
  const planned = new Map(planFields(kind, platform).map((field) => [field.name, field]));
  const known = eventFields.filter(({ kinds }) => kinds.includes(kind));
  const counted = known
    .map(({ name }) => name)
    .filter((name) => required.includes(name) || (planned.get(name)?.fallback ?? '') !== '');
  assert(counted.length <= 31, `${kind} has more required fields and defaults than an integer has bits`);
  const bitOf = (name: string): number => (counted.includes(name) ? 1 << counted.indexOf(name) : 0);
  return {
    fields: new Map(
      known.map((field) => {
        const { label = '', isSixtyFourBit = false, isUserId = false } = planned.get(field.name) ?? {};
        const render = isSixtyFourBit ? undefined : renderers.get(field);
        const { name } = field;
        return [name, { label, render, isTime: name === 'eventTimestamp', isUserId, bit: bitOf(name) }];
      }),
    ),
    required: required.reduce((bits, name) => bits | bitOf(name), 0),
    defaults: [...planned.values()]
      .filter(({ fallback }) => fallback !== '')
      .map(({ name, fallback }) => ({ bit: bitOf(name), fallback })),
  };
}

const plans: ReadonlyMap<EventKind, ReadonlyMap<Platform, PlainPlan>> = new Map(
  [...eventSchemas]
    .filter(([, schema]) => Object.keys(schema).every((keyword) => knownKeywords.has(keyword)))
    .map(([kind, { required = [] }]) => [
      kind,
      new Map(platforms.map((platform) => [platform, createPlan(kind, platform, required)])),
    ]),
);

/** Events that are plain, all of them. */
export interface PlainEvents {
  readonly events: readonly RenderedEvent[];
  /** Parameters that no schema knows; they are ignored. */
  readonly unknownParameters: number;
}

/**
 * Validates and renders the members of events in one pass over what their clients gave, where each event is plainly
 * valid: nearly all are. Whatever is not is left to the judge, the schema (schema-registry.ts), and rendered by
 * `renderEvent`; what is accepted here is accepted there, and becomes the same members, in the client's order.
 *
 * `values` come from a text of JSON. Returns undefined when one of them is not plainly valid.
 */
export function renderPlainEvents(
  kind: EventKind,
  platform: Platform,
  values: readonly unknown[],
): PlainEvents | undefined {
  const plan = plans.get(kind)?.get(platform);
  if (plan === undefined) return undefined;
  let unknownParameters = 0;
  const events: RenderedEvent[] = [];
  for (const value of values) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
    const fields = value as GivenFields;
    let [members, seen] = ['', 0];
    let time: number | undefined;
    // What comes from a parser of JSON has no members but its own.
    for (const name in fields) {
      const field = plan.fields.get(name);
      if (field === undefined) {
        unknownParameters += 1;
        continue;
      }
      const given = fields[name];
      const text = field.render?.(given);
      if (text === undefined) return undefined;
      seen |= field.bit;
      if (field.isTime) time = given as number;
      else if (given !== '' || !field.isUserId) members += field.label + text;
    }
    if ((seen & plan.required) !== plan.required) return undefined;
    for (const { bit, fallback } of plan.defaults) if ((seen & bit) === 0) members += fallback;
    events.push({ time, members });
  }
  return { events, unknownParameters };
}
