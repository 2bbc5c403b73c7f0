import type { FieldSchema } from './field-schema.ts';

/**
 * Renders a value that is plainly valid as its JSON; undefined for any other: it may be valid all the same, which the
 * schema's own judge (schema-registry.ts) knows.
 */
export type PlainRenderer = (value: unknown) => string | undefined;

/** How long a text may be, in characters. */
interface Lengths {
  readonly least: number;
  readonly most: number;
}

const surrogate = /[\ud800-\udfff]/;

/** Says whether a text is surely of an allowed length: one with surrogates has fewer characters than units. */
const isPlainText = (value: unknown, { least, most }: Lengths): value is string =>
  typeof value === 'string' && value.length >= least && value.length <= most && (least <= 1 || !surrogate.test(value));

function createText(lengths: Lengths): PlainRenderer {
  // Events that stand together are often of one user with one device.
  let last: unknown;
  let rendered: string | undefined;
  return (value) => {
    if (value === last) return rendered;
    last = value;
    return (rendered = isPlainText(value, lengths) ? JSON.stringify(value) : undefined);
  };
}

function createChoice(values: readonly unknown[]): PlainRenderer {
  const rendered = new Map(values.map((value) => [value, JSON.stringify(value)]));
  return (value) => rendered.get(value);
}

function createInteger(least: number, most: number): PlainRenderer {
  return (value) =>
    typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most ? `${value}` : undefined;
}

function createTextMap(ofNames: Lengths, ofTexts: Lengths): PlainRenderer {
  return (value) => {
    if (typeof value !== 'object' || value === null) return undefined;
    // PHP writes an empty map as an empty array.
    if (Array.isArray(value)) return value.length === 0 ? '{}' : undefined;
    const members = value as Readonly<Record<string, unknown>>;
    // What comes from a parser of JSON has no members but its own.
    for (const name in members)
      if (!isPlainText(name, ofNames) || !isPlainText(members[name], ofTexts)) return undefined;
    return JSON.stringify(value);
  };
}

/** Says whether a keyword only describes a field, and allows or refuses no value. */
const isDescriptive = (keyword: string): boolean =>
  ['description', 'default'].includes(keyword) || keyword.startsWith('x-');

/** The rules of a schema. */
function rulesOf(schema: object): ReadonlyMap<string, unknown> {
  return new Map(Object.entries(schema).filter(([keyword]) => !isDescriptive(keyword)));
}

/** The values of the rules, when there are no others and all of them are numbers. */
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

/**
 * Creates the renderer of a field from its schema; undefined when its rules are others than those that are known here:
 * then no value of it is plain.
 */
export function createPlainRenderer(schema: FieldSchema): PlainRenderer | undefined {
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
