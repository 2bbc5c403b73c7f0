import { isKeyOf } from '../runtime/files/checksummed-json.ts';
import { readPackageJson } from '../runtime/files/package-files.ts';
import { datasets, exportNames, getExport } from './dataset.ts';
import type { EventKind, ColumnType, FieldSchema } from './field-schema.ts';

export type TitleDictionary = Readonly<Record<string, string>>;

export type AppAttribute = 'sdkKey' | 'title' | 'idAccount' | 'idProject' | 'platform';

/**
 * Source of a selector's value. `column`: a column of the dataset's table; the cell is empty without it. `seconds`: a
 * time as Unix seconds. `titleOf`: the title of the id in another selector, from its dictionary or from loaded titles;
 * else the row's own. `derived`: of derived rows only.
 */
type SelectorSource =
  | { readonly column: string; readonly titleOf?: string; readonly dictionary?: TitleDictionary }
  | { readonly seconds: string }
  | { readonly zoneDate: string }
  | { readonly zoneTime: string }
  | { readonly mapKeys: string }
  | { readonly mapValues: string }
  | { readonly constant: string }
  | { readonly app: AppAttribute }
  | { readonly derived: 'count_event' | 'duration' };

export interface Selector {
  readonly name: string;
  readonly type: 'string' | 'integer' | 'number' | 'date' | 'timestamp' | 'array';
  readonly meaning: string;
  readonly source: SelectorSource;
  readonly columnType?: ColumnType;
  /** Kinds that have it [all]; for others the cell is empty. */
  readonly kinds?: readonly EventKind[];
}

interface EventsFile {
  readonly device: readonly string[];
  readonly user: readonly string[];
  readonly legacyAliases: Readonly<Record<string, string>>;
}

/** Names of the served dictionaries, files of `schemas/dictionaries/`. */
export const dictionaryNames = [
  'events',
  'selectors',
  'countries',
  'timezones',
  'verification',
  'purchase-types',
  'rooted',
  'ad-mediators',
  'connection-types',
] as const;
type DictionaryName = (typeof dictionaryNames)[number];

type TitleName = Exclude<DictionaryName, 'events' | 'selectors' | 'timezones'>;

interface DictionaryFiles extends Readonly<Record<TitleName, TitleDictionary>> {
  readonly events: EventsFile;
  readonly selectors: readonly Selector[];
  readonly timezones: readonly string[];
}

const read: object = Object.fromEntries(
  dictionaryNames.map((name) => [name, readPackageJson(`schemas/dictionaries/${name}.json`)]),
);
const files = read as DictionaryFiles;

export function findDictionary({ 'x-dictionary': name }: FieldSchema): TitleDictionary | undefined {
  if (name === undefined) return undefined;
  if (!isKeyOf(files, name)) throw new Error(`schemas: no dictionary ${name}`);
  return files[name] as TitleDictionary;
}

function toSelectorType({ type, 'x-column-type': columnType }: FieldSchema): Selector['type'] {
  if (columnType === 'TIMESTAMPTZ') return 'timestamp';
  // Whole numbers that exceed a double are texts of digits.
  if (columnType.endsWith(',0)')) return 'integer';
  if (columnType === 'DATE') return 'date';
  return type === 'number' || type === 'string' ? type : 'integer';
}

/** Members that are equal for fields of one name in all datasets. */
const shared = ['description', 'type', 'x-column', 'x-column-type', 'x-dictionary', 'x-title-of', 'x-filter'];
const ownSelectors = files.selectors;

export const rowFields: ReadonlyMap<string, FieldSchema> = (() => {
  const fields = new Map<string, FieldSchema>();
  for (const { table, fields: own } of datasets.values()) {
    for (const { name, schema } of own) {
      if (ownSelectors.some((selector) => selector.name === name))
        throw new Error(`schemas: the field ${name} of ${table} has the name of one of the service's own selectors`);
      const known = fields.get(name);
      const odd = shared.find((member) => known !== undefined && known[member] !== schema[member]);
      if (odd !== undefined) throw new Error(`schemas: ${name} has another ${odd} in ${table} than in other datasets`);
      fields.set(name, known ?? schema);
    }
  }
  return fields;
})();

function toSelector(name: string, schema: FieldSchema): Selector {
  const type = toSelectorType(schema);
  const column = schema['x-column'];
  const titleOf = schema['x-title-of'];
  const identifies = titleOf === undefined ? undefined : rowFields.get(titleOf);
  if (titleOf !== undefined && identifies === undefined && !ownSelectors.some((own) => own.name === titleOf))
    throw new Error(`schemas: ${name} is the title of ${titleOf}, which is not a selector`);
  const dictionary = identifies === undefined ? undefined : findDictionary(identifies);
  const titled = {
    column,
    ...(titleOf === undefined ? {} : { titleOf }),
    ...(dictionary === undefined ? {} : { dictionary }),
  };
  return {
    name,
    type,
    meaning: schema.description,
    source: type === 'timestamp' ? { seconds: column } : titled,
    columnType: schema['x-column-type'],
  };
}

const byName = (a: { readonly name: string }, b: { readonly name: string }): number => (a.name < b.name ? -1 : 1);

/** Selectors by name: those of the dictionary file, and the fields of rows. */
export const selectors: ReadonlyMap<string, Selector> = new Map(
  [...ownSelectors, ...[...rowFields].map(([name, schema]) => toSelector(name, schema))]
    .toSorted(byName)
    .map((selector) => [selector.name, selector]),
);

export function getSelector(name: string): Selector {
  const selector = selectors.get(name);
  if (selector === undefined) throw new Error(`no selector ${name}`);
  return selector;
}

function isOfUsers(name: string): boolean {
  const { event } = getExport(name);
  return 'derive' in event ? event.of === 'user' : event.requires === 'user';
}

const eventsFile: EventsFile = (() => {
  const { device, user, legacyAliases } = files.events;
  const known = new Set([...device, ...user]);
  // An added dataset brings its own.
  const added = exportNames.filter((name) => !known.has(name));
  return {
    device: [...device, ...added.filter((name) => !isOfUsers(name))],
    user: [...user, ...added.filter(isOfUsers)],
    legacyAliases,
  };
})();

export const dictionaries = Object.freeze({
  ...files,
  events: eventsFile,
  selectors: [...selectors.values()].map(({ name, type, meaning }) => ({ name, type, meaning })),
});

export const eventNames: readonly string[] = [...eventsFile.device, ...eventsFile.user].toSorted();

/** Older singular names of events, with the current ones (docs/api.md#events-and-selectors). */
export const eventAliases: ReadonlyMap<string, string> = new Map(Object.entries(eventsFile.legacyAliases));

export const timezones: ReadonlySet<string> = new Set(dictionaries.timezones);

function findCanonicalZone(name: string): string | undefined {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone;
  } catch {
    return undefined;
  }
}

/** Returns the time zone of the dictionary for its name or an IANA alias such as `US/Pacific`; undefined if unknown. */
export function findTimezone(name: string): string | undefined {
  if (timezones.has(name)) return name;
  // Offsets and other spellings are not aliases.
  const canonical = /^[A-Z]\w*(?:\/[A-Z][\w+-]*)*$/.test(name) ? findCanonicalZone(name) : undefined;
  return canonical === undefined ? undefined : [...timezones].find((zone) => findCanonicalZone(zone) === canonical);
}

export const { countries } = dictionaries;

/** Ids such as `__proto__` must not reach the prototype. */
export function findTitle(dictionary: TitleDictionary, id: string): string | undefined {
  return Object.hasOwn(dictionary, id) ? dictionary[id] : undefined;
}

/** A field of ids with loadable titles: `idCampaign`, whose titles `idCampaignTitle` shows. */
interface TitledField {
  readonly name: string;
  readonly isNumber: boolean;
}

function findTitled({ source }: Selector): { readonly name: string; readonly isInDictionary: boolean } | undefined {
  if (!('column' in source) || source.titleOf === undefined) return undefined;
  return { name: source.titleOf, isInDictionary: source.dictionary !== undefined };
}

const titled = [...selectors.values()].flatMap((selector) => findTitled(selector) ?? []);

export const titledFields: ReadonlyMap<string, TitledField> = new Map(
  titled
    .filter(({ isInDictionary }) => !isInDictionary)
    .map(({ name }) => [name, { name, isNumber: selectors.get(name)?.type === 'integer' }]),
);

const elsewhere: ReadonlyMap<string, string> = new Map([
  ...titled
    .filter(({ isInDictionary }) => isInDictionary)
    .map(({ name }) => [name, 'a dictionary of the API'] as const),
  ...['idApp', 'idPlatform'].map((name) => [name, "the app's registration"] as const),
]);

/** Returns the source of titles of a field that has no loadable ones; undefined for other names. */
export function findTitlesElsewhere(name: string): string | undefined {
  return elsewhere.get(name);
}

/** Returns the fields whose loaded titles a selector may show: its own id, then that without `Attr`. */
export function listTitleFields(selector: string): readonly TitledField[] {
  const known = selectors.get(selector);
  const name = known === undefined ? undefined : findTitled(known)?.name;
  if (name === undefined) return [];
  return [...new Set([name, name.replace(/(?:Prev)?Attr$/, '')])].flatMap((field) => titledFields.get(field) ?? []);
}

interface Country {
  /** Two capital letters. `AN` and `XK` are in use outside of ISO 3166, without a number. */
  readonly alpha2: string;
  readonly numeric?: number;
  readonly id?: number;
}

interface CountryCodesFile {
  readonly byId: Readonly<Record<string, { readonly alpha2: string; readonly numeric: number }>>;
  /** Dictionary countries outside of ISO 3166. */
  readonly idsWithoutCode: readonly string[];
  /** ISO 3166 countries outside of the dictionary, with numbers. */
  readonly codesWithoutId: Readonly<Record<string, number>>;
  /** Codes of address databases that neither has. */
  readonly codesOutsideIso: readonly string[];
}

export const countryCodes = readPackageJson('schemas/dictionaries/country-codes.json') as CountryCodesFile;

const countriesByCode: ReadonlyMap<string, Country> = new Map(
  [
    ...Object.entries(countryCodes.byId).map(([id, code]): Country => ({ ...code, id: Number(id) })),
    ...Object.entries(countryCodes.codesWithoutId).map(([alpha2, numeric]): Country => ({ alpha2, numeric })),
    ...countryCodes.codesOutsideIso.map((alpha2): Country => ({ alpha2 })),
  ].map((country) => [country.alpha2, country]),
);

export function findCountry(alpha2: string): Country | undefined {
  return countriesByCode.get(alpha2);
}

export function listCountries(): readonly Country[] {
  return [...countriesByCode.values()];
}

/** Maps of the package for raw files of other trackers, by dataset (docs/load.md). */
export const loadMaps = {
  installs: ['adjust', 'appsflyer', 'branch', 'singular'],
  payments: ['adjust', 'appsflyer'],
} as const;

/** Reads a map of the package; undefined if a dataset has none of that name. */
export function findLoadMap(table: string, name: string): unknown {
  const names: readonly string[] = isKeyOf(loadMaps, table) ? loadMaps[table] : [];
  return names.includes(name) ? readPackageJson(`schemas/maps/${table}-${name}.json`) : undefined;
}
