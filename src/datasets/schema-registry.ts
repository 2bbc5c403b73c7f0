import { Ajv2020, type ErrorObject, type FuncKeywordDefinition, type ValidateFunction } from 'ajv/dist/2020.js';
import { eventSchemas, eventFields, fieldsSchema, type FieldSchema } from './event-fields.ts';
import type { EventKind } from './event-kinds.ts';
import { parseJsonInteger, parseJsonNumber } from './json-number.ts';

/** The first rule that a value breaks: where (a JSON pointer below the value) and why, in the schema's own terms. */
export interface Violation {
  readonly pointer: string;
  readonly reason: string;
}

/** Fields of one event, as the client gave them. */
export type GivenFields = Record<string, unknown>;

/**
 * Validates one event against its schema, in place: where a field is a number and the value a string that writes one in
 * JSON's grammar, the value becomes that number (64-bit fields stay strings of digits). Nothing else is ever coerced.
 */
export type EventValidator = (fields: GivenFields) => Violation | undefined;

interface DecimalRange {
  readonly minimum: string;
  readonly maximum: string;
}

/** `decimalRange`: a string of digits whose exact value lies within two bounds, which no double could tell apart. */
const decimalRange: FuncKeywordDefinition = {
  keyword: 'decimalRange',
  type: 'string',
  schemaType: 'object',
  errors: false,
  compile({ minimum, maximum }: DecimalRange) {
    const [low, high] = [BigInt(minimum), BigInt(maximum)];
    return (text: string): boolean => /^-?\d+$/.test(text) && BigInt(text) >= low && BigInt(text) <= high;
  },
};

const annotations = ['x-column', 'x-column-type', 'x-unit', 'x-platforms', 'x-device-id'];

function createAjv(): Ajv2020 {
  const ajv = new Ajv2020({ strict: true, strictTypes: false, allErrors: false, verbose: true });
  for (const annotation of annotations) ajv.addKeyword(annotation);
  ajv.addKeyword(decimalRange);
  ajv.addSchema(fieldsSchema);
  return ajv;
}

/** How a string in place of a number is read: as a double, or as exact digits. */
function numberReader(schema: FieldSchema): ((text: string) => number | string | undefined) | undefined {
  if (schema.type === 'integer' || schema.type === 'number') return parseJsonNumber;
  if (schema.oneOf?.some((branch) => branch.type === 'integer') === true) return parseJsonInteger;
  return undefined;
}

function describeViolation(errors: readonly ErrorObject[]): Violation {
  const [first] = errors;
  if (first === undefined) return { pointer: '', reason: 'is not valid' };
  // A name that breaks a rule is reported twice: the rule, then the name.
  const name = errors.find((error) => error.keyword === 'propertyNames');
  if (name !== undefined)
    return { pointer: name.instancePath, reason: `has a name that ${first.message ?? 'is not valid'}` };
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

function createValidator(validate: ValidateFunction, kind: EventKind): EventValidator {
  const readers = eventFields
    .filter((field) => field.kinds.includes(kind))
    .flatMap(({ name, schema }) => {
      const read = numberReader(schema);
      return read === undefined ? [] : [{ name, read }];
    });
  return (fields) => {
    for (const { name, read } of readers) {
      const value = fields[name];
      if (typeof value !== 'string') continue;
      // A text outside the grammar stays as it is, and the schema refuses it.
      fields[name] = read(value) ?? value;
    }
    return validate(fields) ? undefined : describeViolation(validate.errors ?? []);
  };
}

/** The validator of each event kind, compiled from `schemas/events/`. */
const eventValidators: ReadonlyMap<EventKind, EventValidator> = (() => {
  const ajv = createAjv();
  return new Map([...eventSchemas].map(([kind, schema]) => [kind, createValidator(ajv.compile(schema), kind)]));
})();

/** Validates one event of a kind: see `EventValidator`. */
export function validateEvent(kind: EventKind, fields: GivenFields): Violation | undefined {
  const validate = eventValidators.get(kind);
  if (validate === undefined) throw new Error(`${kind} is no kind of event`);
  return validate(fields);
}
