import { datasets, type Dataset } from '../../datasets/dataset.ts';
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
  describeUsualCompression,
  endingOf,
  formatNames,
  getFormat,
} from '../../datasets/file-formats.ts';
import { eventFields } from '../../datasets/event-fields.ts';
import type { ExportEvent } from '../../datasets/pipeline-file.ts';
import { commonFields } from '../../datasets/row-fields.ts';
import { personFields } from '../../datasets/subject.ts';
import { filterNames, parameters, type Parameter, versionParameters } from './parameters.ts';
import { defaultTimezone } from './parse-request.ts';

interface OrderEvent {
  readonly name: string;
  readonly about: string;
  /** Selectors that may have values; the others are empty columns. */
  readonly selectors: readonly string[];
  readonly filters: readonly string[];
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
  'event',
  'selectors',
  ...versionParameters,
  'sinceVersion',
  'timezone',
  'format',
  'compression',
  'order',
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
      selectors: [...selectors.values()].flatMap((known) => (canHave(known, dataset, event) ? [known.name] : [])),
      filters: filters.flatMap((known) => ((known.events?.includes(name) ?? true) ? [known.name] : [])),
    })),
  );
  const order = [...user, ...device];
  return {
    events: all.toSorted((a, b) => order.indexOf(a.name) - order.indexOf(b.name)),
    selectors: [...selectors.values()].map((selector) => {
      const { name, type, meaning } = selector;
      return { name, type, meaning, group: groupOf(selector) };
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
  };
}
