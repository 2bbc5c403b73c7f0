import { Ajv2020, type ErrorObject, type FuncKeywordDefinition } from 'ajv/dist/2020.js';
import { eventSchemas, eventFields } from './event-fields.ts';
import { sharedFieldsSchema, type DecimalRange, type EventKind, type FieldSchema } from './field-schema.ts';
import { parseFloatDecimal, parseJsonInteger, parseJsonNumber, quoteNumbers } from './json-number.ts';

/** The first rule that a value violates: a JSON pointer and the schema's reason. */
export interface SchemaError {
  readonly pointer: string;
  readonly reason: string;
  readonly hint?: string;
}

export type InputFields = Record<string, unknown>;

function findDecimal({ decimalRange: range }: FieldSchema): Required<DecimalRange> | undefined {
  return range?.places === undefined ? undefined : { ...range, places: range.places };
}

/** A string of digits within bounds that exceed doubles. */
const decimalRange: FuncKeywordDefinition = {
  keyword: 'decimalRange',
  type: 'string',
  schemaType: 'object',
  errors: false,
  compile({ minimum, maximum, places = 0 }: DecimalRange) {
    const unit = 10n ** BigInt(places);
    const [low, high] = [BigInt(minimum) * unit, BigInt(maximum) * unit];
    return (text: string): boolean => {
      const [, whole = '', fraction = ''] = /^(-?\d+)(?:\.(\d+))?$/.exec(text) ?? [];
      if (whole === '' || fraction.length > places) return false;
      // A decimal was read from JSON's grammar: remaining leading zeros are invalid.
      if (places > 0 && /^-?0\d/.test(whole)) return false;
      const value = BigInt(`${whole}${fraction.padEnd(places, '0')}`);
      return value >= low && value <= high;
    };
  },
};

const annotations = [
  'x-column',
  'x-column-type',
  'x-unit',
  'x-platforms',
  'x-device-id',
  'x-title-of',
  'x-dictionary',
  'x-filter',
];

function createAjv(allErrors: boolean): Ajv2020 {
  // Strict mode rejects unknown keywords and values; checking the schemas against their meta-schema would take a tenth
  // of a process's start.
  const ajv = new Ajv2020({
    strict: true,
    strictTypes: false,
    allErrors,
    verbose: true,
    meta: false,
    validateSchema: false,
  });
  for (const annotation of annotations) ajv.addKeyword(annotation);
  ajv.addKeyword(decimalRange);
  ajv.addSchema(sharedFieldsSchema);
  return ajv;
}

/** Reads a string in place of a number as a double, or as exact digits. */
function numberReader(schema: FieldSchema): ((text: string) => number | string | undefined) | undefined {
  if (schema.type === 'integer' || schema.type === 'number') return parseJsonNumber;
  if (schema.oneOf?.some((branch) => branch.type === 'integer') === true) return parseJsonInteger;
  const decimal = findDecimal(schema);
  return decimal === undefined ? undefined : (text) => parseFloatDecimal(text, decimal.places);
}

function describeViolation(errors: readonly ErrorObject[]): SchemaError {
  const [first] = errors;
  if (first === undefined) return { pointer: '', reason: 'is not valid' };
  // An invalid name is reported twice: the rule, then the name.
  const name = errors.find((error) => error.keyword === 'propertyNames');
  if (name !== undefined)
    return { pointer: name.instancePath, reason: `has a name that ${first.message ?? 'is not valid'}` };
  const decimal = findDecimal((first.parentSchema ?? {}) as FieldSchema);
  if (decimal !== undefined) {
    const { minimum, maximum, places } = decimal;
    const reason = `must be a number from ${minimum} to ${maximum} with at most ${places} decimal places`;
    return { pointer: first.instancePath, reason };
  }
  const choice = errors.find((error) => error.keyword === 'oneOf');
  if (choice !== undefined) return { pointer: choice.instancePath, reason: 'must be an integer within its range' };
  switch (first.keyword) {
    case 'required':
      return { pointer: `${first.instancePath}/${String(first.params['missingProperty'])}`, reason: 'is required' };
    case 'enum':
      return {
        pointer: first.instancePath,
        reason: `must be one of ${first.params['allowedValues'].join(', ')}`,
      };
    case 'decimalRange': {
      const { minimum, maximum } = first.schema as DecimalRange;
      return { pointer: first.instancePath, reason: `must be a string of digits from ${minimum} to ${maximum}` };
    }
    default:
      return { pointer: first.instancePath, reason: first.message ?? 'is not valid' };
  }
}

/** Converts numbers in strings, and empty maps that PHP writes as empty arrays, in place. */
function createReader(kind: EventKind): (fields: InputFields) => void {
  const ofKind = eventFields.filter((field) => field.kinds.includes(kind));
  const readers = ofKind.flatMap(({ name, schema }) => {
    const read = numberReader(schema);
    return read === undefined ? [] : [{ name, read }];
  });
  const maps = ofKind.filter(({ schema }) => schema.type === 'object').map(({ name }) => name);
  return (fields) => {
    for (const name of maps) {
      const value = fields[name];
      if (Array.isArray(value) && value.length === 0) fields[name] = {};
    }
    for (const { name, read } of readers) {
      const value = fields[name];
      if (typeof value !== 'string') continue;
      // The schema rejects a text outside of the grammar.
      fields[name] = read(value) ?? value;
    }
  };
}

/** Units of a time, and the number from which seconds are impossible. */
const smallUnits = [
  { from: 1e17, name: 'nanoseconds' },
  { from: 1e14, name: 'microseconds' },
  { from: 1e11, name: 'milliseconds' },
] as const;

function hintAtTime({ keyword, data }: ErrorObject): Pick<SchemaError, 'hint'> {
  if (typeof data === 'string') return { hint: 'give Unix seconds, such as 1767225600' };
  if (typeof data !== 'number') return {};
  const unit = smallUnits.find(({ from }) => data >= from);
  if (unit !== undefined) return { hint: `it looks like ${unit.name}: give seconds` };
  return keyword === 'type' ? { hint: 'give whole seconds' } : {};
}

function hintAt([first]: readonly ErrorObject[]): Pick<SchemaError, 'hint'> {
  if (first === undefined) return {};
  const { keyword, params, data, instancePath } = first;
  const isText = keyword === 'type' && params['type'] === 'string';
  if (isText && typeof data === 'number') return { hint: 'write it in quotes' };
  // A parameter may have any name.
  return /^\/[^/]*timestamp$/i.test(instancePath) ? hintAtTime(first) : {};
}

/** Lists violations of one event; converts its numbers in place. */
type EventJudge = (fields: InputFields) => readonly ErrorObject[];

function createJudge(ajv: Ajv2020, kind: EventKind): EventJudge {
  const schema = eventSchemas.get(kind);
  if (schema === undefined) throw new Error(`${kind} is not a kind of event`);
  const validate = ajv.compile(schema);
  const readNumbers = createReader(kind);
  return (fields) => {
    readNumbers(fields);
    return validate(fields) ? [] : (validate.errors ?? []);
  };
}

/** Groups errors by location: a rule may be reported in several parts. */
function groupByPlace(errors: readonly ErrorObject[]): ErrorObject[][] {
  const groups = new Map<string, ErrorObject[]>();
  for (const error of errors) {
    const missing = error.keyword === 'required' ? `/${String(error.params['missingProperty'])}` : '';
    const pointer = `${error.instancePath}${missing}`;
    groups.set(pointer, [...(groups.get(pointer) ?? []), error]);
  }
  return [...groups.values()];
}

const firstFaults: ReadonlyMap<EventKind, EventJudge> = (() => {
  const ajv = createAjv(false);
  return new Map([...eventSchemas.keys()].map((kind) => [kind, createJudge(ajv, kind)]));
})();

const decimalNames: ReadonlyMap<EventKind, ReadonlySet<string>> = new Map(
  [...eventSchemas.keys()].map((kind) => [
    kind,
    new Set(
      eventFields
        .filter(({ kinds, schema }) => kinds.includes(kind) && findDecimal(schema) !== undefined)
        .map(({ name }) => name),
    ),
  ]),
);

/** Parses JSON events of a kind; decimals become texts digit by digit. Throws as JSON.parse. */
export function parseEventJson(kind: EventKind, text: string): unknown {
  const value: unknown = JSON.parse(text);
  const names = decimalNames.get(kind);
  return names === undefined || names.size === 0 ? value : JSON.parse(quoteNumbers(text, names));
}

/**
 * Validates one event in place: a string with a JSON number becomes the field's number (64-bit fields and decimals
 * remain strings of digits), an empty array an empty map. Nothing else is coerced.
 */
export function validateEvent(kind: EventKind, fields: InputFields): SchemaError | undefined {
  const judge = firstFaults.get(kind);
  if (judge === undefined) throw new Error(`${kind} is not a kind of event`);
  const errors = judge(fields);
  return errors.length === 0 ? undefined : { ...describeViolation(errors), ...hintAt(errors) };
}

const allFaults = new Map<EventKind, EventJudge>();

/** Lists the violations of one event, at most one per location. Converts in place as `validateEvent` does. */
export function listSchemaErrors(kind: EventKind, fields: InputFields): SchemaError[] {
  const judge = allFaults.get(kind) ?? createJudge(createAjv(true), kind);
  allFaults.set(kind, judge);
  return groupByPlace(judge(fields)).map((errors) => ({ ...describeViolation(errors), ...hintAt(errors) }));
}
