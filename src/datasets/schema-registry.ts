import { Ajv2020, type ErrorObject, type FuncKeywordDefinition } from 'ajv/dist/2020.js';
import { eventSchemas, eventFields } from './event-fields.ts';
import { fieldsSchema, type DecimalRange, type EventKind, type FieldSchema } from './field-schema.ts';
import { parseFloatDecimal, parseJsonInteger, parseJsonNumber, quoteNumbers } from './json-number.ts';

/** The first rule that a value breaks: where (a JSON pointer below the value) and why, in the schema's own terms. */
export interface Violation {
  readonly pointer: string;
  readonly reason: string;
  /** What was probably meant. */
  readonly hint?: string;
}

/** Fields of one event, as the client gave them. */
export type GivenFields = Record<string, unknown>;

/** The range of a field that is a decimal; undefined for any other. */
function findDecimal({ decimalRange: range }: FieldSchema): Required<DecimalRange> | undefined {
  return range?.places === undefined ? undefined : { ...range, places: range.places };
}

/** `decimalRange`: a string of digits whose exact value lies within two bounds, which no double could tell apart. */
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
      // A decimal has been read from JSON's grammar: what still has needless zeros in front was outside of it.
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
  // Strict, it refuses keywords that it does not know and values that they cannot have; to hold the schemas against the
  // schema of schemas as well would take a tenth of the time that a process needs to start.
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
  ajv.addSchema(fieldsSchema);
  return ajv;
}

/** How a string in place of a number is read: as a double, or as exact digits. */
function numberReader(schema: FieldSchema): ((text: string) => number | string | undefined) | undefined {
  if (schema.type === 'integer' || schema.type === 'number') return parseJsonNumber;
  if (schema.oneOf?.some((branch) => branch.type === 'integer') === true) return parseJsonInteger;
  const decimal = findDecimal(schema);
  return decimal === undefined ? undefined : (text) => parseFloatDecimal(text, decimal.places);
}

function describeViolation(errors: readonly ErrorObject[]): Violation {
  const [first] = errors;
  if (first === undefined) return { pointer: '', reason: 'is not valid' };
  // A name that breaks a rule is reported twice: the rule, then the name.
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
        reason: `must be one of ${(first.params['allowedValues'] as unknown[]).join(', ')}`,
      };
    case 'decimalRange': {
      const { minimum, maximum } = first.schema as DecimalRange;
      return { pointer: first.instancePath, reason: `must be a string of digits from ${minimum} to ${maximum}` };
    }
    default:
      return { pointer: first.instancePath, reason: first.message ?? 'is not valid' };
  }
}

/** Reads numbers that were written as strings, and empty maps that PHP writes as empty arrays, in place. */
function createReader(kind: EventKind): (fields: GivenFields) => void {
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
      // A text outside the grammar stays as it is, and the schema refuses it.
      fields[name] = read(value) ?? value;
    }
  };
}

/** Units that a time may be in, and from which number on it is far too late to be in a larger one. */
const smallUnits = [
  { from: 1e17, name: 'nanoseconds' },
  { from: 1e14, name: 'microseconds' },
  { from: 1e11, name: 'milliseconds' },
] as const;

/** What a client has probably meant by a time that is no number of Unix seconds. */
function hintAtTime({ keyword, data }: ErrorObject): Pick<Violation, 'hint'> {
  if (typeof data === 'string') return { hint: 'give Unix seconds, such as 1767225600' };
  if (typeof data !== 'number') return {};
  const unit = smallUnits.find(({ from }) => data >= from);
  if (unit !== undefined) return { hint: `it looks like ${unit.name}: give seconds` };
  return keyword === 'type' ? { hint: 'give whole seconds' } : {};
}

/** What the client has probably meant by a value that its field cannot have. */
function hintAt([first]: readonly ErrorObject[]): Pick<Violation, 'hint'> {
  if (first === undefined) return {};
  const { keyword, params, data, instancePath } = first;
  const isText = keyword === 'type' && params['type'] === 'string';
  if (isText && typeof data === 'number') return { hint: 'write it in quotes' };
  // A parameter of the client's own may have any name.
  return /^\/[^/]*timestamp$/i.test(instancePath) ? hintAtTime(first) : {};
}

/** Lists what is wrong with one event, the first or all of it; the numbers in it are read in place. */
type EventJudge = (fields: GivenFields) => readonly ErrorObject[];

function createJudge(ajv: Ajv2020, kind: EventKind): EventJudge {
  const schema = eventSchemas.get(kind);
  if (schema === undefined) throw new Error(`${kind} is no kind of event`);
  const validate = ajv.compile(schema);
  const readNumbers = createReader(kind);
  return (fields) => {
    readNumbers(fields);
    return validate(fields) ? [] : (validate.errors ?? []);
  };
}

/** Errors of one place: a rule may be reported in several parts. */
function groupByPlace(errors: readonly ErrorObject[]): ErrorObject[][] {
  const groups = new Map<string, ErrorObject[]>();
  for (const error of errors) {
    const missing = error.keyword === 'required' ? `/${String(error.params['missingProperty'])}` : '';
    const place = `${error.instancePath}${missing}`;
    groups.set(place, [...(groups.get(place) ?? []), error]);
  }
  return [...groups.values()];
}

/** Finds the first fault of an event of each kind, by `schemas/events/`. */
const firstFaults: ReadonlyMap<EventKind, EventJudge> = (() => {
  const ajv = createAjv(false);
  return new Map([...eventSchemas.keys()].map((kind) => [kind, createJudge(ajv, kind)]));
})();

/** Names of the fields of each kind whose numbers are exact decimals. */
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

/** Parses a JSON text of events of a kind; numbers of decimal fields become texts, digit by digit. Throws as JSON.parse. */
export function parseEventJson(kind: EventKind, text: string): unknown {
  const value: unknown = JSON.parse(text);
  const names = decimalNames.get(kind);
  return names === undefined || names.size === 0 ? value : (JSON.parse(quoteNumbers(text, names)) as unknown);
}

/**
 * Validates one event of a kind against its schema, in place: where a field is a number and the value a string that
 * writes one in JSON's grammar, the value becomes that number (64-bit fields and decimals stay strings of digits); where
 * it is a map, an empty array becomes the empty map. Nothing else is ever coerced.
 */
export function validateEvent(kind: EventKind, fields: GivenFields): Violation | undefined {
  const judge = firstFaults.get(kind);
  if (judge === undefined) throw new Error(`${kind} is no kind of event`);
  const errors = judge(fields);
  return errors.length === 0 ? undefined : { ...describeViolation(errors), ...hintAt(errors) };
}

/** As the first ones, but each goes on to the end. Made kind by kind when one is first asked for: hardly anybody asks. */
const allFaults = new Map<EventKind, EventJudge>();

/**
 * Lists the rules that one event of a kind breaks, at most one for each place. Fields are read in place as
 * `validateEvent` reads them; empty where that finds nothing wrong.
 */
export function listViolations(kind: EventKind, fields: GivenFields): Violation[] {
  const judge = allFaults.get(kind) ?? createJudge(createAjv(true), kind);
  allFaults.set(kind, judge);
  return groupByPlace(judge(fields)).map((errors) => ({ ...describeViolation(errors), ...hintAt(errors) }));
}
