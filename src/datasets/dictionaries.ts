import { readPackageJson } from '../runtime/files/package-files.ts';
import { datasets, exportNames, getExport } from './dataset.ts';
import type { EventKind, ColumnType, FieldSchema } from './field-schema.ts';

/** Titles by id, as the API's dictionaries have them. The ids are decimal numbers written as text. */
export type TitleDictionary = Readonly<Record<string, string>>;

/** What an event has from its registered app. */
export type AppFact = 'sdkKey' | 'title' | 'idAccount' | 'idProject' | 'platform';

/**
 * Where a selector's value comes from. `column`: a column of the dataset's table, under its name; the cell is empty where
 * the table has none. `seconds`: a time, as Unix seconds. `titleOf`: the title of what another selector identifies, by
 * the dictionary of its values or by the titles that were loaded; else the row's own. `derived`: only rows that are
 * derived from events have it.
 */
type SelectorSource =
  | { readonly column: string; readonly titleOf?: string; readonly dictionary?: TitleDictionary }
  | { readonly seconds: string }
  | { readonly zoneDate: string }
  | { readonly mapKeys: string }
  | { readonly mapValues: string }
  | { readonly constant: string }
  | { readonly app: AppFact }
  | { readonly derived: 'count_event' | 'duration' };

/** One field of an export, under the API's own name. */
export interface Selector {
  readonly name: string;
  readonly type: 'string' | 'integer' | 'number' | 'date' | 'timestamp' | 'array';
  readonly meaning: string;
  readonly source: SelectorSource;
  /** The type of the column that it reads, where it is a field of rows. */
  readonly columnType?: ColumnType;
  /** The kinds of imported event that have it; absent: all. For the others the cell is empty. */
  readonly kinds?: readonly EventKind[];
}

interface EventsFile {
  readonly device: readonly string[];
  readonly user: readonly string[];
  readonly legacyAliases: Readonly<Record<string, string>>;
}

/** Names under which the dictionaries are served, each a file of `schemas/dictionaries/`. */
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

type JsonFile = Readonly<Record<DictionaryName, unknown>>;

const files = Object.fromEntries(
  dictionaryNames.map((name) => [name, readPackageJson(`schemas/dictionaries/${name}.json`)]),
) as JsonFile;

/** The titles of a field's values; undefined where it has no dictionary. */
export function findDictionary({ 'x-dictionary': name }: FieldSchema): TitleDictionary | undefined {
  if (name === undefined) return undefined;
  if (!dictionaryNames.some((known) => known === name)) throw new Error(`schemas: no dictionary ${name}`);
  return files[name as DictionaryName] as TitleDictionary;
}

function toSelectorType({ type, 'x-column-type': columnType }: FieldSchema): Selector['type'] {
  if (columnType === 'TIMESTAMPTZ') return 'timestamp';
  // Whole numbers that no double holds come as digits in a text.
  if (columnType.endsWith(',0)')) return 'integer';
  if (columnType === 'DATE') return 'date';
  return type === 'number' || type === 'string' ? type : 'integer';
}

/** What fields of one name have in common in all datasets. */
const shared = ['description', 'type', 'x-column', 'x-column-type', 'x-dictionary', 'x-title-of', 'x-filter'];
const ownSelectors = files.selectors as readonly Selector[];

/** Every field of rows, by name: under one name all datasets have the same. */
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
    throw new Error(`schemas: ${name} is the title of ${titleOf}, which is no selector`);
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

/** Every selector by name: those of the dictionary's file, and the fields of rows. */
export const selectors: ReadonlyMap<string, Selector> = new Map(
  [...ownSelectors, ...[...rowFields].map(([name, schema]) => toSelector(name, schema))]
    .toSorted(byName)
    .map((selector) => [selector.name, selector]),
);

/** The selector of a name. Throws for a name that is none. */
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
  const { device, user, legacyAliases } = files.events as EventsFile;
  const known = new Set([...device, ...user]);
  // A dataset that was added brings its own.
  const added = exportNames.filter((name) => !known.has(name));
  return {
    device: [...device, ...added.filter((name) => !isOfUsers(name))],
    user: [...user, ...added.filter(isOfUsers)],
    legacyAliases,
  };
})();

/** Every dictionary, as it is served. */
export const dictionaries: Readonly<Record<DictionaryName, unknown>> = Object.freeze({
  ...files,
  events: eventsFile,
  selectors: [...selectors.values()].map(({ name, type, meaning }) => ({ name, type, meaning })),
});

/** Names of the events an export can ask for, without the aliases. */
export const eventNames: readonly string[] = [...eventsFile.device, ...eventsFile.user].toSorted();

/** The older singular names of service.md 7.2, and the event each stands for. */
export const eventAliases: ReadonlyMap<string, string> = new Map(Object.entries(eventsFile.legacyAliases));

/** Names of the time zones a request may be in. */
export const timezones: ReadonlySet<string> = new Set(dictionaries.timezones as string[]);

function findCanonicalZone(name: string): string | undefined {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone;
  } catch {
    return undefined;
  }
}

/** The time zone of the dictionary that a name means: its own, or an alias of IANA such as `US/Pacific`; undefined: none. */
export function findTimezone(name: string): string | undefined {
  if (timezones.has(name)) return name;
  // Offsets and other spellings of a name are no aliases.
  const canonical = /^[A-Z]\w*(?:\/[A-Z][\w+-]*)*$/.test(name) ? findCanonicalZone(name) : undefined;
  return canonical === undefined ? undefined : [...timezones].find((zone) => findCanonicalZone(zone) === canonical);
}

export const countries = dictionaries.countries as TitleDictionary;

/** The value of a title dictionary, whatever the id is; `__proto__` and the like are not ids. */
export function findTitle(dictionary: TitleDictionary, id: string): string | undefined {
  return Object.hasOwn(dictionary, id) ? dictionary[id] : undefined;
}

/** A field of ids that titles can be loaded for: `idCampaign`, whose titles the selector `idCampaignTitle` shows. */
interface TitledField {
  readonly name: string;
  /** Its ids are whole numbers, otherwise texts. */
  readonly isNumber: boolean;
}

/** What a selector is the title of, and whether a dictionary has the titles; undefined for other selectors. */
function findTitled({ source }: Selector): { readonly name: string; readonly isInDictionary: boolean } | undefined {
  if (!('column' in source) || source.titleOf === undefined) return undefined;
  return { name: source.titleOf, isInDictionary: source.dictionary !== undefined };
}

const titled = [...selectors.values()].flatMap((selector) => findTitled(selector) ?? []);

/** Every field that titles can be loaded for, by its name, in the order of the selectors. */
export const titledFields: ReadonlyMap<string, TitledField> = new Map(
  titled
    .filter(({ isInDictionary }) => !isInDictionary)
    .map(({ name }) => [name, { name, isNumber: selectors.get(name)?.type === 'integer' }]),
);

/** Where the titles of the other fields of ids come from. */
const elsewhere: ReadonlyMap<string, string> = new Map([
  ...titled
    .filter(({ isInDictionary }) => isInDictionary)
    .map(({ name }) => [name, 'a dictionary of the API'] as const),
  ...['idApp', 'idPlatform'].map((name) => [name, "the app's registration"] as const),
]);

/** Where the titles of a field come from that none can be loaded for; undefined for those that can, and for no field. */
export function findTitlesElsewhere(name: string): string | undefined {
  return elsewhere.get(name);
}

/**
 * The fields whose loaded titles a selector may show, the first that has one first: that of its own id, and for an
 * attributed one that of the thing itself, since `idCampaignAttr` 66 is the campaign 66. None for other selectors.
 */
export function listTitleFields(selector: string): readonly TitledField[] {
  const known = selectors.get(selector);
  const name = known === undefined ? undefined : findTitled(known)?.name;
  if (name === undefined) return [];
  return [...new Set([name, name.replace(/(?:Prev)?Attr$/, '')])].flatMap((field) => titledFields.get(field) ?? []);
}

/** A country, by its ISO 3166 code. */
interface Country {
  /** Two capital letters. `AN` and `XK` are in use and stand outside ISO 3166: they have no number. */
  readonly alpha2: string;
  readonly numeric?: number;
  /** The country's id in the dictionary `countries`; absent where the dictionary does not have it. */
  readonly id?: number;
}

interface CountryCodesFile {
  /** The codes of the dictionary's countries. */
  readonly byId: Readonly<Record<string, { readonly alpha2: string; readonly numeric: number }>>;
  /** Countries of the dictionary that ISO 3166 does not have. */
  readonly idsWithoutCode: readonly string[];
  /** Countries of ISO 3166 that the dictionary does not have, and their numbers. */
  readonly codesWithoutId: Readonly<Record<string, number>>;
  /** Codes that address databases use, and that neither ISO 3166 nor the dictionary has. */
  readonly codesOutsideIso: readonly string[];
}

/** The codes as their file has them. */
export const countryCodes = readPackageJson('schemas/dictionaries/country-codes.json') as CountryCodesFile;

const countriesByCode: ReadonlyMap<string, Country> = new Map(
  [
    ...Object.entries(countryCodes.byId).map(([id, code]): Country => ({ ...code, id: Number(id) })),
    ...Object.entries(countryCodes.codesWithoutId).map(([alpha2, numeric]): Country => ({ alpha2, numeric })),
    ...countryCodes.codesOutsideIso.map((alpha2): Country => ({ alpha2 })),
  ].map((country) => [country.alpha2, country]),
);

/** The country of a two-letter code in capitals; undefined when no country has it. */
export function findCountry(alpha2: string): Country | undefined {
  return countriesByCode.get(alpha2);
}

/** Lists all countries. */
export function listCountries(): readonly Country[] {
  return [...countriesByCode.values()];
}
