import {
  adMediators,
  countries,
  eventAliases,
  eventNames,
  findTitle,
  purchaseTypes,
  rooted,
  selectors,
  timezones,
  verification,
  type TitleDictionary,
} from '../../datasets/dictionaries.ts';
import { isSdkKey } from '../../access/sdk-key.ts';
import { compressions, fileFormats } from '../jobs/export-spec.ts';

/** What a single value must be. `accept` returns it in its one spelling, or undefined when the rule forbids it. */
export interface ValueRule {
  /** Ends the sentence "allowed: ...". */
  readonly allowed: string;
  accept(value: string): string | undefined;
}

/** One parameter of the create call (service.md 2.4). */
export interface Parameter {
  readonly name: string;
  readonly meaning: string;
  /**
   * `one`: a single value. `set`: many, as `a,b` or repeated. `list`: many, repeated only; commas belong to the value.
   */
  readonly shape: 'one' | 'set' | 'list';
  readonly rule: ValueRule;
  /** The events it is for; absent: all. */
  readonly events?: readonly string[];
}

/** A set must stay below this many values (service.md 8). */
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

/** Filters on parameters of custom events: `params[level]=3`. A name and its values have the same rule. */
export const paramsName = 'params[NAME]';
export const paramRule: ValueRule = { ...eventNameRule, allowed: 'texts of 1 to 255 characters' };

/** service.md 2.4 has the id of an available segment, and no segment can be made yet. */
const segmentRule: ValueRule = {
  allowed: 'the id of an available segment, and there is none',
  accept: () => undefined,
};

function oneOf(names: Iterable<string>): ValueRule {
  const known = new Set(names);
  return { allowed: [...known].join(', '), accept: (value) => (known.has(value) ? value : undefined) };
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
};

const paymentEvents = ['payments', 'userPayments', 'testPayments', 'trialPayments', 'userTrialPayments'];
/** The events that have a name and parameters of the client's own. */
export const customEvents: readonly string[] = ['customEvents', 'userCustomEvents'];
const adMonetizationEvents = ['adMonetization', 'userAdMonetization'];

/** Every parameter of the create call but `params[NAME]`; the API reference and the parser both read it. */
export const parameters: readonly Parameter[] = [
  { name: 'event', meaning: 'Event to export.', shape: 'one', rule: eventRule },
  {
    name: 'selectors',
    meaning: 'Fields to export, in the order of the columns.',
    shape: 'set',
    rule: oneOf(selectors.keys()),
  },
  { name: 'dateFrom', meaning: 'First day, in the time zone of the request.', shape: 'one', rule: dateRule },
  { name: 'dateTo', meaning: 'Last day, inclusive.', shape: 'one', rule: dateRule },
  { name: 'tsFrom', meaning: 'First second.', shape: 'one', rule: timestampRule },
  { name: 'tsTo', meaning: 'Last second, inclusive.', shape: 'one', rule: timestampRule },
  {
    name: 'availabilityTsFrom',
    meaning: 'First second at which the event appeared in the system.',
    shape: 'one',
    rule: timestampRule,
  },
  {
    name: 'availabilityTsTo',
    meaning: 'Last second at which the event appeared in the system, inclusive.',
    shape: 'one',
    rule: timestampRule,
  },
  {
    name: 'timezone',
    meaning: 'Time zone in which days are read; Europe/Moscow by default.',
    shape: 'one',
    rule: oneOf(timezones),
  },
  { name: 'idApp', meaning: 'Apps. With SDKKey: rows that either names.', shape: 'set', rule: idRule },
  { name: 'SDKKey', meaning: 'SDK keys of apps. With idApp: rows that either names.', shape: 'set', rule: sdkKeyRule },
  { name: 'idAccount', meaning: 'Accounts.', shape: 'set', rule: idRule },
  { name: 'idAd', meaning: 'Tracking links.', shape: 'set', rule: idRule },
  { name: 'idCampaign', meaning: 'Campaigns.', shape: 'set', rule: idRule },
  { name: 'idCountry', meaning: 'Countries.', shape: 'set', rule: idOf(countries) },
  { name: 'idProject', meaning: 'Projects.', shape: 'set', rule: idRule },
  { name: 'idPartner', meaning: 'Partners.', shape: 'set', rule: idRule },
  {
    name: 'isVerified',
    meaning: 'Verification of the payment.',
    shape: 'one',
    rule: idOf(verification),
    events: paymentEvents,
  },
  {
    name: 'idPurchaseType',
    meaning: 'Type of the purchase.',
    shape: 'one',
    rule: idOf(purchaseTypes),
    events: paymentEvents,
  },
  {
    name: 'eventName',
    meaning: 'Names of custom events; a comma belongs to the name.',
    shape: 'list',
    rule: eventNameRule,
    events: customEvents,
  },
  {
    name: 'eventNameInvert',
    meaning: '1: the named custom events are left out. 0 by default.',
    shape: 'one',
    rule: oneOf(['0', '1']),
    events: customEvents,
  },
  { name: 'rooted', meaning: 'Jailbreak or root access.', shape: 'one', rule: idOf(rooted) },
  {
    name: 'idAdMediator',
    meaning: 'Ad mediator.',
    shape: 'one',
    rule: idOf(adMediators),
    events: adMonetizationEvents,
  },
  {
    name: 'format',
    meaning: 'Kind of file; csv by default.',
    shape: 'one',
    rule: oneOf(fileFormats),
  },
  {
    name: 'compression',
    meaning:
      'Compression of the files. By default csv and jsonl are compressed by gzip when they are large, parquet by zstd.',
    shape: 'one',
    rule: oneOf(compressions),
  },
  {
    name: 'order',
    meaning:
      "time: rows in the order of the event's time, then of its id. By default they come as they lie in the lake.",
    shape: 'one',
    rule: oneOf(['time']),
  },
  { name: 'idSegment', meaning: 'Segment.', shape: 'one', rule: segmentRule, events: ['hits', 'installs'] },
];

/** The parameters by name. */
export const parametersByName: ReadonlyMap<string, Parameter> = new Map(
  parameters.map((parameter) => [parameter.name, parameter]),
);
