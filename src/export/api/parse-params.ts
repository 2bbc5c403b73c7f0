import { type ExportSpec, type ParamFilter, type ParamOperator } from '../jobs/export-spec.ts';
import { quote, type Arguments } from './arguments.ts';
import { badRequest, type ExportApiError } from './envelope.ts';
import { customEvents, paramRule, setSizeLimit } from './parameters.ts';

/** A filter on a parameter of custom events: `params[level]=3`, `paramsGreater[level]=3` and so on. */
interface ParamArgument {
  /** Name of the argument before the brackets. */
  readonly prefix: string;
  readonly meaning: string;
  /** Whether it takes one value. */
  readonly isOne: boolean;
  readonly allowed: string;
  readonly accepts: (value: string) => boolean;
}

const isText = (value: string): boolean => paramRule.accept(value) !== undefined;
const isNumber = (value: string): boolean =>
  /^-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?$/.test(value) && Number.isFinite(Number(value));
const texts = { isOne: false, allowed: paramRule.allowed, accepts: isText };
const number = { isOne: true, allowed: 'one number such as 3 or -0.5', accepts: isNumber };

/** All filters on parameters; the first has no operator. */
const paramArguments: readonly (readonly [operator: ParamOperator | undefined, argument: ParamArgument])[] = [
  [undefined, { prefix: 'params', meaning: 'one of the values', ...texts }],
  ['not', { prefix: 'paramsNot', meaning: 'none of the values, or no such parameter', ...texts }],
  ['contains', { prefix: 'paramsContain', meaning: 'a value that contains one of the texts', ...texts }],
  ['greater', { prefix: 'paramsGreater', meaning: 'a number above the value', ...number }],
  ['less', { prefix: 'paramsLess', meaning: 'a number below the value', ...number }],
  [
    'set',
    {
      prefix: 'paramsSet',
      meaning: '1: a value that is not empty; 0: none',
      isOne: true,
      allowed: '0 or 1',
      accepts: (value) => value === '0' || value === '1',
    },
  ],
];

/** Describes the filters for the API reference. */
export const paramMeanings: string = paramArguments
  .map(([, { prefix, meaning }]) => `${prefix}[NAME]: ${meaning}`)
  .join('; ');

/** Names of the filters for messages. */
export const paramArgumentNames: readonly string[] = paramArguments.map(([, { prefix }]) => `${prefix}[NAME]`);

const form = /^(params[A-Za-z]*)\[(.+)\]$/s;

function findArgument(argument: string) {
  const [, prefix, name = ''] = form.exec(argument) ?? [];
  const found = paramArguments.find(([, known]) => known.prefix === prefix);
  return found === undefined ? undefined : { operator: found[0], rule: found[1], name };
}

/** Reports whether an argument is a filter on a parameter. */
export const isParamArgument = (argument: string): boolean => findArgument(argument) !== undefined;

/** Returns the argument of a filter. */
export function paramArgumentOf({ name, operator }: ParamFilter): string {
  const prefix = paramArguments.find(([known]) => known === operator)?.[1].prefix ?? 'params';
  return `${prefix}[${name}]`;
}

/** Parses the filters on parameters, which must all match. */
export function parseParams(callArguments: Arguments, event: string): Pick<ExportSpec, 'params'> | ExportApiError {
  const params: ParamFilter[] = [];
  let count = 0;
  for (const [argument, values] of callArguments) {
    const found = findArgument(argument);
    if (found === undefined) continue;
    const { operator, rule, name } = found;
    if (!customEvents.includes(event))
      return badRequest(
        `Argument ${rule.prefix} is not allowed for event ${event}; it is only for ${customEvents.join(', ')}`,
      );
    const refuse = (bad: string, allowed: string): ExportApiError =>
      badRequest(`Argument ${quote(argument)} is invalid: ${quote(bad)}; allowed: ${allowed}`);
    if (!isText(name)) return refuse(name, paramRule.allowed);
    const bad = rule.isOne && values.length > 1 ? values[1] : values.find((value) => !rule.accepts(value));
    if (bad !== undefined) return refuse(bad, rule.allowed);
    count += values.length;
    params.push({ name, values: [...new Set(values)], ...(operator === undefined ? {} : { operator }) });
  }
  if (count >= setSizeLimit)
    return badRequest(`Argument params is too large: ${count} values, the set size must be below ${setSizeLimit}`);
  return count === 0 ? {} : { params };
}
