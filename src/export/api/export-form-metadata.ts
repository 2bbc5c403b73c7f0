import { datasets, events, type Dataset } from '../../datasets/dataset.ts';
import {
  dictionaries,
  findDictionary,
  getSelector,
  rowFields,
  selectors,
  timezones,
  type Selector,
  type TitleDictionary,
} from '../../datasets/dictionaries.ts';
import {
  compressions,
  csvDialects,
  describeUsualCompression,
  endingOf,
  formatNames,
  getFormat,
} from '../../datasets/file-formats.ts';
import { eventFields } from '../../datasets/event-fields.ts';
import type { ExportEvent } from '../../datasets/pipeline-file.ts';
import { commonFields } from '../../datasets/row-fields.ts';
import { personFields } from '../../datasets/subject.ts';
import { paramColumnLimit } from '../jobs/export-spec.ts';
import { customEvents, filterNames, parameters, type Parameter, versionParameters } from './parameters.ts';
import { defaultTimezone } from './parse-request.ts';

interface OrderEvent {
  readonly name: string;
  readonly about: string;
  readonly group: EventGroup;
  /** Kinds of the data overview whose rows it has or is derived from. */
  readonly kinds: readonly string[];
  /** Whether it has each row of its kinds. */
  readonly isAll: boolean;
  /** Selectors that may have values; the others are empty columns. */
  readonly selectors: readonly string[];
  readonly filters: readonly string[];
}

const eventGroups = ['Events', 'Users', 'Installs', 'Revenue', 'Ads', 'Attribution'] as const;
type EventGroup = (typeof eventGroups)[number];

const tableGroups: readonly (readonly [EventGroup, RegExp])[] = [
  ['Installs', /^(installs|reinstalls|appUpdates)$/],
  ['Revenue', /^payments$/],
  ['Ads', /^(hits|adMonetization)$/],
  ['Attribution', /./],
];

function eventGroupOf({ table }: Dataset, event: ExportEvent): EventGroup {
  if (table === events.table) return 'derive' in event || event.kind !== 'custom_event' ? 'Users' : 'Events';
  return tableGroups.find(([, pattern]) => pattern.test(table))?.[0] ?? 'Attribution';
}

function kindsOf({ table, kinds }: Dataset, event: ExportEvent): readonly string[] {
  if (table !== events.table) return [table];
  return 'derive' in event || event.kind === undefined ? kinds : [event.kind];
}

/** Words of names that are not written in small letters. */
const properWords: Readonly<Record<string, string>> = Object.fromEntries(
  [
    'SDK',
    'ISO',
    'SKAN',
    'OS',
    'SIM',
    'URL',
    'DPI',
    'LVID',
    'IDFA',
    'GAID',
    'HWID',
    'OAID',
    'WAID',
    'IPv4',
    'IPv6',
    'ATT',
  ].map((word) => [word.toLowerCase(), word]),
);

const titleRules: readonly (readonly [pattern: RegExp, title: string])[] = [
  [/^ts(.+)$/, '$1 time'],
  [/^dt(.+)$/, '$1 date'],
  [/^dateTime(.+)$/, '$1 date and time'],
  [/^count(.+)$/, '$1 count'],
  [/^is([A-Z].*)$/, '$1'],
  [/^params\.(.+)$/, 'Parameter $1s'],
  [/^id([A-Z].*)PrevAttrTitle$/, '$1, previously attributed'],
  [/^id([A-Z].*)PrevAttr$/, '$1 id, previously attributed'],
  [/^id([A-Z].*)AttrTitle$/, '$1, attributed'],
  [/^id([A-Z].*)Attr$/, '$1 id, attributed'],
  [/^id([A-Z].*)(?:Title|Name)$/, '$1'],
  [/^id([A-Z].*)$/, '$1 id'],
];

/** Returns a title of a column for people, such as `Country id` of `idCountry`. */
function describeName(name: string): string {
  const rule = titleRules.find(([pattern]) => pattern.test(name));
  const text = rule === undefined ? name : name.replace(rule[0], rule[1]);
  const words = text
    .replaceAll(/([a-z])([A-Z])/g, '$1 $2')
    .replaceAll(/([A-Z]+)([A-Z][a-z])/g, '$1 $2')
    .split(/[\s_]+/)
    .map((word) => properWords[word.toLowerCase()] ?? word.toLowerCase())
    .join(' ');
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}`;
}

/** `event`: the event and its own fields; the others may belong to all events. */
type Group = 'event' | 'app' | 'person' | 'attribution' | 'device' | 'place';

export interface ExportFormFilter extends Pick<Parameter, 'name' | 'meaning' | 'shape'> {
  /** Allowed values with their titles; absent: ids or texts. */
  readonly choices?: TitleDictionary;
  /** In a set of texts, a comma and a backslash of a value are sent after a backslash. */
  readonly isText: boolean;
  /** Whether its values identify a person or a device. */
  readonly isPerson?: true;
}

const noFilters = new Set<string>([
  'name',
  'deliverTo',
  'event',
  'selectors',
  ...versionParameters,
  'sinceVersion',
  'erasures',
  'timezone',
  'format',
  'compression',
  'order',
  'columns',
  'dialect',
  // A caller has one account.
  'idAccount',
]);
const textFilters = new Set(['SDKKey', 'eventName']);

const groupRules: readonly (readonly [Group, RegExp])[] = [
  ['place', /^(idCountry|idRegion|ipv)/],
  ['person', /^(customUserId|age|idGender|idProfile|sezam|customPlatform|xPlatform)/],
  ['attribution', /^(idAd(?!Mediator)|idCampaign|idPartner|idSub|idTraffic|tsAttr|clickId|tsClick|tsView)/],
  ['app', /^(idApp|idProject|SDKKey|idAccount|idPlatform|idTracker|tsInstall)/],
];

function groupOf({ name }: Selector): Group {
  const found = groupRules.find(([, pattern]) => pattern.test(name))?.[0];
  if (found !== undefined) return found;
  return !['eventName', 'eventValue'].includes(name) && commonFields.some((field) => field.name === name)
    ? 'device'
    : 'event';
}

/** Reports whether an event may have a value of a column, by its kind. */
function hasColumn(name: string, { columns, table }: Dataset, event: ExportEvent): boolean {
  const column = columns.find((known) => known.name === name);
  const kinds = eventFields.find((field) => field.name === column?.field)?.kinds;
  const kind = 'derive' in event ? undefined : event.kind;
  return column !== undefined && (table !== 'events' || kind === undefined || (kinds?.includes(kind) ?? true));
}

function canHave({ source, kinds }: Selector, dataset: Dataset, event: ExportEvent): boolean {
  const kind = 'derive' in event ? undefined : event.kind;
  if (kinds !== undefined && kind !== undefined && !kinds.includes(kind)) return false;
  if (kinds !== undefined && kind === undefined && !dataset.kinds.some((known) => kinds.includes(known))) return false;
  if ('app' in source || 'constant' in source) return true;
  if ('derived' in source)
    return (
      'derive' in event &&
      (event.derive === 'sessions' || (event.derive === 'days' && source.derived === 'count_event'))
    );
  if ('seconds' in source) return hasColumn(source.seconds, dataset, event);
  if ('zoneDate' in source) return hasColumn(source.zoneDate, dataset, event);
  if ('zoneTime' in source) return hasColumn(source.zoneTime, dataset, event);
  if ('mapKeys' in source) return hasColumn(source.mapKeys, dataset, event);
  if ('mapValues' in source) return hasColumn(source.mapValues, dataset, event);
  const { column, titleOf } = source;
  return hasColumn(column, dataset, event) || (titleOf !== undefined && canHave(getSelector(titleOf), dataset, event));
}

function describeEvent({ description, table }: Dataset, event: ExportEvent): string {
  if ('derive' in event) {
    const { of } = event;
    if (event.derive === 'first') return `The first event of each ${of}.`;
    return event.derive === 'days' ? `The days on which each ${of} was active.` : `The sessions of each ${of}.`;
  }
  const what =
    table === 'events' ? `Imported ${event.kind?.replaceAll('_', ' ') ?? 'event'}s, one row per event.` : description;
  const conditions = [
    ...Object.entries(event.where ?? {}).map(([name, value]) => `${name} ${value}`),
    ...(event.requires === undefined ? [] : [`a ${event.requires} identifier`]),
  ];
  return conditions.length === 0 ? what : `${what} Only those with ${conditions.join(' and ')}.`;
}

function describeFilter({ name, meaning, shape }: Parameter): ExportFormFilter {
  const schema = rowFields.get(name);
  const titles = schema === undefined ? undefined : findDictionary(schema);
  const allowed = schema?.enum;
  const plain = allowed === undefined ? undefined : Object.fromEntries(allowed.map((value) => [String(value), '']));
  const choices = name === 'eventNameInvert' ? { 0: 'only the named', 1: 'all but the named' } : (titles ?? plain);
  const isText = textFilters.has(name) || (filterNames.includes(name) && schema?.['x-column-type'] === 'VARCHAR');
  const ofPerson = personFields.includes(name) ? { isPerson: true as const } : {};
  return { name, meaning, shape, isText, ...ofPerson, ...(choices === undefined ? {} : { choices }) };
}

/** Describes the choices of an export form, from the tables of the parser. */
export function describeExportForm() {
  const filters = parameters.filter(({ name }) => !noFilters.has(name));
  const { device, user } = dictionaries.events;
  const all = [...datasets.values()].flatMap((dataset) =>
    [...dataset.exports].map(([name, event]): OrderEvent => ({
      name,
      about: describeEvent(dataset, event),
      group: eventGroupOf(dataset, event),
      kinds: kindsOf(dataset, event),
      isAll: !('derive' in event) && event.where === undefined && event.requires === undefined,
      selectors: [...selectors.values()].flatMap((known) => (canHave(known, dataset, event) ? [known.name] : [])),
      filters: filters.flatMap((known) => ((known.events?.includes(name) ?? true) ? [known.name] : [])),
    })),
  );
  const order = [...user, ...device];
  return {
    events: all.toSorted((a, b) => order.indexOf(a.name) - order.indexOf(b.name)),
    eventGroups,
    selectors: [...selectors.values()].map((selector) => {
      const { name, type, meaning } = selector;
      return { name, title: describeName(name), type, meaning, group: groupOf(selector) };
    }),
    filters: filters.map(describeFilter),
    timezones: [...timezones],
    timezone: defaultTimezone,
    formats: formatNames.map((name) => ({
      name,
      title: getFormat(name).title,
      usual: describeUsualCompression(name),
      endings: Object.fromEntries(compressions.map((each) => [each, endingOf({ format: name, compression: each })])),
    })),
    compressions,
    dialects: csvDialects,
    /** Events that can have a column per parameter, and the most such columns. */
    paramColumns: { events: customEvents, limit: paramColumnLimit },
  };
}
