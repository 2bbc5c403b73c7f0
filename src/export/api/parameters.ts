import { datasets } from '../../datasets/dataset.ts';
import {
  compressions,
  csvDialects,
  defaultFormat,
  describeUsualCompression,
  formatNames,
} from '../../datasets/file-formats.ts';
import {
  eventAliases,
  eventNames,
  findDictionary,
  findTitle,
  rowFields,
  selectors,
  findTimezone,
  timezones,
  type TitleDictionary,
} from '../../datasets/dictionaries.ts';
import type { FieldSchema } from '../../datasets/field-schema.ts';
import { commonFields } from '../../datasets/row-fields.ts';
import { findNearest } from '../../runtime/nearest-name.ts';
import { isSdkKey } from '../../access/apps.ts';
import { parseCursor } from '../../lake/log/change-feed.ts';
import { paramColumnLimit } from '../jobs/export-spec.ts';

/** The rule of a value. `accept` returns its canonical form, or undefined if it is forbidden. */
interface ValueRule {
  /** Completes the sentence "allowed: ...". */
  readonly allowed: string;
  accept(value: string): string | undefined;
  suggest?(value: string): string | undefined;
}

/** A parameter of the create call (docs/api.md#parameters-of-create). */
export interface Parameter {
  readonly name: string;
  readonly meaning: string;
  /** `one`: a single value. `set`: several, `a,b` or repeated. `list`: only repeated, as values may contain commas. */
  readonly shape: 'one' | 'set' | 'list';
  /** Whether texts of a set may contain commas, written `\,`; a backslash is `\\` then. */
  readonly hasEscapes?: true;
  readonly rule: ValueRule;
  /** Absent: all events. */
  readonly events?: readonly string[];
  readonly isFilter?: true;
}

/** A set must have fewer values (docs/api.md#limits). */
export const setSizeLimit = 1000;

const maxId = 2n ** 63n - 1n;

const idRule: ValueRule = {
  allowed: 'whole numbers from 0 to 9223372036854775807',
  accept(value) {
    if (!/^\d{1,19}$/.test(value)) return undefined;
    const id = BigInt(value);
    return id <= maxId ? String(id) : undefined;
  },
};

const timestampRule: ValueRule = {
  allowed: 'a Unix timestamp in seconds',
  accept: (value) => (/^\d{1,12}$/.test(value) ? String(Number(value)) : undefined),
};

const dateRule: ValueRule = {
  allowed: 'a date as YYYY-MM-DD, not below 1970-01-01',
  accept(value) {
    if (!/^\d{4}-\d{2}-\d{2}$/.test(value)) return undefined;
    const time = Date.parse(`${value}T00:00:00Z`);
    return time >= 0 && new Date(time).toISOString().startsWith(value) ? value : undefined;
  },
};

const placeRule: ValueRule = {
  allowed: 'a cursor as in nextSinceVersion, or a version number',
  accept: (value) => (parseCursor(value) === undefined ? undefined : value),
};

const sdkKeyRule: ValueRule = {
  allowed: 'SDK keys of 1 to 255 characters',
  accept: (value) => (isSdkKey(value) ? value : undefined),
};

const eventNameRule: ValueRule = {
  allowed: 'names of 1 to 255 characters',
  accept(value) {
    const { length } = Array.from(value);
    return length >= 1 && length <= 255 ? value : undefined;
  },
};

/** The names and texts of filters on parameters of custom events, such as `params[level]=3`. */
export const paramRule: ValueRule = { ...eventNameRule, allowed: 'texts of 1 to 255 characters' };

const characters = (value: string): number => Array.from(value).length;

/** Longest text of a filter on a field whose schema has no limit, characters: a body has no longer one. */
const maxTextLength = 10_240;

function textRule({ minLength = 1, maxLength = maxTextLength }: FieldSchema): ValueRule {
  const least = Math.max(1, minLength);
  return {
    allowed: least === maxLength ? `texts of ${least} characters` : `texts of ${least} to ${maxLength} characters`,
    accept: (value) => (characters(value) >= least && characters(value) <= maxLength ? value : undefined),
  };
}

/** Accepts whole numbers in their shortest form, as far as a column has them. */
function integerRule({ oneOf: forms, decimalRange }: FieldSchema): ValueRule {
  const range = decimalRange ?? forms?.flatMap(({ decimalRange: own }) => own ?? [])[0];
  if (range === undefined) return idRule;
  const [minimum, maximum] = [BigInt(range.minimum), BigInt(range.maximum)];
  return {
    allowed: `whole numbers from ${minimum} to ${maximum}`,
    accept(value) {
      if (!/^-?\d{1,20}$/.test(value)) return undefined;
      const number = BigInt(value);
      return number >= minimum && number <= maximum ? String(number) : undefined;
    },
  };
}

/** `createRequestParser` checks that the caller has the segment. */
const segmentRule: ValueRule = { ...idRule, allowed: 'the id of an available segment' };

function oneOf(names: Iterable<string>): ValueRule {
  const known = new Set(names);
  return {
    allowed: [...known].join(', '),
    accept: (value) => (known.has(value) ? value : undefined),
    suggest: (value) => findNearest(value, known),
  };
}

function idOf(dictionary: TitleDictionary): ValueRule {
  const allowed = Object.entries(dictionary).map(([id, title]) => `${id} (${title})`);
  return {
    allowed: allowed.join(', '),
    accept: (value) => (findTitle(dictionary, value) === undefined ? undefined : value),
  };
}

const eventRule: ValueRule = {
  allowed: [...eventAliases.keys(), ...eventNames].join(', '),
  accept: (value) => eventAliases.get(value) ?? (eventNames.includes(value) ? value : undefined),
  suggest: (value) => findNearest(value, [...eventNames, ...eventAliases.keys()]),
};

/** The events that have a name and parameters of the client's. */
export const customEvents: readonly string[] = ['customEvents', 'userCustomEvents'];

const selectorRule = oneOf(selectors.keys());

const isCommon = (name: string): boolean => commonFields.some((field) => field.name === name);

/** The export events that are rows of a table, not derived. */
const storedEvents: readonly string[] = [...datasets.values()].flatMap(({ exports }) =>
  [...exports].flatMap(([name, event]) => ('derive' in event ? [] : [name])),
);

/** Lists the events whose rows have the column of a field; undefined if all have it. */
function eventsWith({ 'x-column': column }: FieldSchema): string[] | undefined {
  const having = [...datasets.values()].filter(({ columns }) => columns.some(({ name }) => name === column));
  return having.length === datasets.size ? undefined : having.flatMap(({ exports }) => [...exports.keys()]);
}

function filterRule(schema: FieldSchema): ValueRule {
  const titles = findDictionary(schema);
  if (titles !== undefined) return idOf(titles);
  if (schema.enum !== undefined) return oneOf(schema.enum.map(String));
  return schema['x-column-type'] === 'VARCHAR' ? textRule(schema) : integerRule(schema);
}

/** Describes the filter on a field. Throws if the field has none. */
function filterOn(name: string, meaning?: string): Parameter {
  const schema = rowFields.get(name);
  const shape = schema?.['x-filter'];
  if (schema === undefined || shape === undefined) throw new Error(`schemas: ${name} is not a filter`);
  // The contract has the named ones for every event, also for those without the column.
  const events = meaning !== undefined && isCommon(name) ? undefined : eventsWith(schema);
  const isText = schema['x-column-type'] === 'VARCHAR' && schema.enum === undefined;
  return {
    name,
    meaning: meaning ?? schema.description,
    shape,
    rule: filterRule(schema),
    ...(isText && shape === 'set' ? { hasEscapes: true } : {}),
    ...(events === undefined ? {} : { events }),
    isFilter: true,
  };
}

const usualCompressions = formatNames.map((name) => `${name}: ${describeUsualCompression(name)}`).join(', ');

/** Creates a parameter; of all events without a list. */
const parameterOf =
  (shape: Parameter['shape']) =>
  (name: string, meaning: string, rule: ValueRule, events?: readonly string[]): Parameter => ({
    name,
    meaning,
    shape,
    rule,
    ...(events === undefined ? {} : { events }),
  });
const [one, set, list] = [parameterOf('one'), parameterOf('set'), parameterOf('list')];

const selectorsRule: ValueRule = {
  ...selectorRule,
  suggest: (value) =>
    value.startsWith('params.')
      ? "params.name and params.value, and params[NAME] for the rows of one parameter's values"
      : selectorRule.suggest?.(value),
};

/** `createRequestParser` checks that the caller has the destination. */
const destinationRule: ValueRule = {
  allowed: 'the id of a destination of the account',
  accept: (value) => (/^de_[0-9a-f]{16}$/.test(value) ? value : undefined),
};

/** Names of exports and schedules, for people. */
const nameRule: ValueRule = {
  allowed: 'a text of 1 to 100 characters without line breaks',
  accept(value) {
    const text = value.trim();
    const { length } = Array.from(text);
    return length >= 1 && length <= 100 && !/\p{Cc}/u.test(text) ? text : undefined;
  },
};

const ownParameters: readonly Parameter[] = [
  one('event', 'Event to export.', eventRule),
  set('selectors', 'Fields to export, in the order of the columns. Required without erasures.', selectorsRule),
  one('dateFrom', 'First day, in the time zone of the request.', dateRule),
  one('dateTo', 'Last day, inclusive.', dateRule),
  one('tsFrom', 'First second.', timestampRule),
  one('tsTo', 'Last second, inclusive.', timestampRule),
  one('availabilityTsFrom', 'First second at which the event appeared in the system.', timestampRule),
  one('availabilityTsTo', 'Last second at which the event appeared in the system, inclusive.', timestampRule),
  one(
    'sinceVersion',
    'Only rows that became available after this cursor, which is nextSinceVersion of the previous export. Dates are optional with it.',
    placeRule,
    storedEvents,
  ),
  one(
    'erasures',
    '1: the ids of rows that were erased or undone after the cursor, instead of new rows.',
    oneOf(['1']),
    storedEvents,
  ),
  one(
    'asOf',
    'Version of the data to read: nextSinceVersion of an earlier export. The same request then returns the same bytes.',
    placeRule,
  ),
  one('timezone', 'Time zone of days. Default: Europe/Moscow.', {
    ...oneOf(timezones),
    accept: findTimezone,
  }),
  set('idApp', 'Apps. With SDKKey: rows that either names.', idRule),
  set('SDKKey', 'SDK keys of apps. With idApp: rows that either names.', sdkKeyRule),
  set('idAccount', 'Accounts.', idRule),
  filterOn('idAd', 'Tracking links.'),
  filterOn('idCampaign', 'Campaigns.'),
  filterOn('idCountry', 'Countries.'),
  set('idProject', 'Projects.', idRule),
  filterOn('idPartner', 'Partners.'),
  filterOn('isVerified', 'Verification of the payment.'),
  filterOn('idPurchaseType', 'Type of the purchase.'),
  list('eventName', 'Names of custom events. A comma is part of a name.', eventNameRule, customEvents),
  one('eventNameInvert', '1: exclude the named custom events. Default: 0.', oneOf(['0', '1']), customEvents),
  filterOn('rooted', 'Jailbreak or root access.'),
  filterOn('idAdMediator', 'Ad mediator.'),
  one('format', `File format. Default: ${defaultFormat}.`, oneOf(formatNames)),
  one(
    'columns',
    `params: after the selectors, a column per parameter of the events, at most ${paramColumnLimit}. Default: none.`,
    oneOf(['params']),
    customEvents,
  ),
  one(
    'dialect',
    'CSV for spreadsheets: byte order mark, formulas made harmless; excel-semicolon: also semicolons and decimal commas.',
    oneOf(csvDialects),
  ),
  one('compression', `Compression of the files. Default: ${usualCompressions}.`, oneOf(compressions)),
  one(
    'order',
    "time: rows sorted by event time, then by event id. Default: the order of the lake's files.",
    oneOf(['time']),
  ),
  one('deliverTo', 'Destination of the account that gets the files.', destinationRule),
  one('name', 'Name of the export or schedule in lists; changes no row.', nameRule),
  one('idSegment', "Segment of the caller's account: rows of its users or devices.", segmentRule, ['hits', 'installs']),
];

export const filterNames: readonly string[] = [...rowFields].flatMap(([name, schema]) =>
  schema['x-filter'] === undefined ? [] : [name],
);

const clash = ownParameters.find(({ name, isFilter }) => isFilter !== true && filterNames.includes(name));
if (clash !== undefined) throw new Error(`schemas: ${clash.name} is a parameter of the create call, not a filter`);

/** All parameters of the create call, in the order of their checks. */
export const parameters: readonly Parameter[] = [
  ...ownParameters,
  ...filterNames.filter((name) => !ownParameters.some((known) => known.name === name)).map((name) => filterOn(name)),
];

export const parametersByName: ReadonlyMap<string, Parameter> = new Map(
  parameters.map((parameter) => [parameter.name, parameter]),
);

/** Parameters of the time and the version of rows. */
export const versionParameters = [
  'dateFrom',
  'dateTo',
  'tsFrom',
  'tsTo',
  'availabilityTsFrom',
  'availabilityTsTo',
  'asOf',
] as const;
