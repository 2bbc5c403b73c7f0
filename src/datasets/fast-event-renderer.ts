import { isRecord } from '../runtime/files/checksummed-json.ts';
import { type FieldSchema, platforms, type EventKind, type Platform } from './field-schema.ts';
import assert from 'node:assert/strict';
import { eventFields, eventSchemas } from './event-fields.ts';
import { planFields, type RenderedEvent } from './event-line.ts';

/** Renders a plainly valid value as JSON; undefined for others, which the schema decides on (schema-registry.ts). */
type FastValueRenderer = (value: unknown) => string | undefined;

interface Lengths {
  readonly least: number;
  readonly most: number;
}

const surrogate = /[\ud800-\udfff]/;

/** Texts with surrogates have fewer characters than units. */
const isPlainText = (value: unknown, { least, most }: Lengths): value is string =>
  typeof value === 'string' && value.length >= least && value.length <= most && (least <= 1 || !surrogate.test(value));

function createText(lengths: Lengths): FastValueRenderer {
  // Consecutive events are often of one user and device.
  let last: unknown;
  let rendered: string | undefined;
  return (value) => {
    if (value === last) return rendered;
    last = value;
    return (rendered = isPlainText(value, lengths) ? JSON.stringify(value) : undefined);
  };
}

function createChoice(values: readonly unknown[]): FastValueRenderer {
  const rendered = new Map(values.map((value) => [value, JSON.stringify(value)]));
  return (value) => rendered.get(value);
}

function createInteger(least: number, most: number): FastValueRenderer {
  return (value) =>
    typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most ? `${value}` : undefined;
}

function createTextMap(ofNames: Lengths, ofTexts: Lengths): FastValueRenderer {
  return (value) => {
    // PHP writes an empty map as an empty array.
    if (!isRecord(value)) return Array.isArray(value) && value.length === 0 ? '{}' : undefined;
    // Parsed JSON has own members only.
    for (const name in value) if (!isPlainText(name, ofNames) || !isPlainText(value[name], ofTexts)) return undefined;
    return JSON.stringify(value);
  };
}

/** Reports whether a keyword has no effect on validity. */
const isDescriptive = (keyword: string): boolean =>
  ['description', 'default'].includes(keyword) || keyword.startsWith('x-');

function rulesOf(schema: object): ReadonlyMap<string, unknown> {
  return new Map(Object.entries(schema).filter(([keyword]) => !isDescriptive(keyword)));
}

function readNumbers(
  rules: ReadonlyMap<string, unknown>,
  type: string | undefined,
  least: string,
  most: string,
): Lengths | undefined {
  const isOther = (keyword: string): boolean =>
    ![least, most, ...(type === undefined ? [] : ['type'])].includes(keyword);
  if (rules.get('type') !== type || [...rules.keys()].some(isOther)) return undefined;
  const [low = Number.NEGATIVE_INFINITY, high = Number.POSITIVE_INFINITY] = [rules.get(least), rules.get(most)];
  return typeof low === 'number' && typeof high === 'number' ? { least: low, most: high } : undefined;
}

/** Creates the renderer of a field; undefined if its schema has rules that are unknown here. */
export function createFastValueRenderer(schema: FieldSchema): FastValueRenderer | undefined {
  const rules = rulesOf(schema);
  const values = rules.get('enum');
  if (Array.isArray(values)) {
    const type = { string: 'string', integer: 'number' }[String(schema.type)];
    return rules.size === 2 && values.every((value) => typeof value === type) ? createChoice(values) : undefined;
  }
  const lengths = readNumbers(rules, 'string', 'minLength', 'maxLength');
  if (lengths !== undefined) return createText(lengths);
  const range = readNumbers(rules, 'integer', 'minimum', 'maximum');
  if (range !== undefined) return createInteger(range.least, range.most);
  const [names, texts] = [rules.get('propertyNames'), rules.get('additionalProperties')];
  if (rules.size !== 3 || schema.type !== 'object' || typeof names !== 'object' || typeof texts !== 'object')
    return undefined;
  const ofNames = readNumbers(rulesOf(names ?? {}), undefined, 'minLength', 'maxLength');
  const ofTexts = readNumbers(rulesOf(texts ?? {}), 'string', 'minLength', 'maxLength');
  return ofNames === undefined || ofTexts === undefined ? undefined : createTextMap(ofNames, ofTexts);
}

interface PlainField {
  readonly label: string;
  readonly render: FastValueRenderer | undefined;
  readonly isTime: boolean;
  readonly isUserId: boolean;
  /** Bit of a required or default field; 0 for others. */
  readonly bit: number;
}

interface PlainPlan {
  readonly fields: ReadonlyMap<string, PlainField>;
  readonly required: number;
  readonly defaults: readonly { readonly bit: number; readonly fallback: string }[];
}

/** Keywords of a kind's schema that are checked here, or have no effect. */
const knownKeywords = new Set(['$schema', '$id', 'title', 'description', 'type', 'required', 'properties']);

/** Shared by kinds and platforms: each caches its last value. */
const renderers = new Map(eventFields.map((field) => [field, createFastValueRenderer(field.schema)]));

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

export interface FastRenderedEvents {
  readonly events: readonly RenderedEvent[];
  readonly unknownParameters: number;
}

/**
 * Validates and renders events in one pass if all are plainly valid, as nearly all are. Others are left to the schema
 * (schema-registry.ts) and `renderEvent`, which accept and render these events alike, except for the order of members.
 * `values` are from JSON. Undefined: one is not plainly valid.
 */
export function renderEventsFast(
  kind: EventKind,
  platform: Platform,
  values: readonly unknown[],
): FastRenderedEvents | undefined {
  const plan = plans.get(kind)?.get(platform);
  if (plan === undefined) return undefined;
  let unknownParameters = 0;
  const events: RenderedEvent[] = [];
  for (const fields of values) {
    if (!isRecord(fields)) return undefined;
    let [members, seen] = ['', 0];
    let time: number | undefined;
    for (const name in fields) {
      const field = plan.fields.get(name);
      if (field === undefined) {
        unknownParameters += 1;
        continue;
      }
      const value = fields[name];
      const text = field.render?.(value);
      if (text === undefined) return undefined;
      seen |= field.bit;
      if (field.isTime) time = Number(value);
      else if (value !== '' || !field.isUserId) members += field.label + text;
    }
    if ((seen & plan.required) !== plan.required) return undefined;
    for (const { bit, fallback } of plan.defaults) if ((seen & bit) === 0) members += fallback;
    events.push({ time, members });
  }
  return { events, unknownParameters };
}
