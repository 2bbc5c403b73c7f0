import { readPackageJson } from '../runtime/files/package-files.ts';
import type { EventKind } from './event-kinds.ts';

/** Titles by id, as the API's dictionaries have them. The ids are decimal numbers written as text. */
export type TitleDictionary = Readonly<Record<string, string>>;

/** What an event has from its registered app. */
export type AppFact = 'sdkKey' | 'title' | 'idAccount' | 'idProject' | 'platform';

/**
 * Where a selector's value comes from. Column names are those of the `events` table. `derived`: only rows that are
 * derived from events have it. `null`: no imported event has such a value, the cell is empty.
 */
export type SelectorSource =
  | { readonly column: string; readonly titles?: TitleDictionary }
  | { readonly seconds: string }
  | { readonly zoneDate: string }
  | { readonly mapKeys: string }
  | { readonly mapValues: string }
  | { readonly constant: string }
  | { readonly app: AppFact }
  | { readonly derived: 'count_event' | 'duration' }
  | null;

/** One field of an export, under the API's own name. */
export interface Selector {
  readonly name: string;
  readonly type: 'string' | 'integer' | 'number' | 'date' | 'timestamp' | 'array';
  readonly meaning: string;
  readonly source: SelectorSource;
  /** The kinds of event that have it; absent: all. For the others the cell is empty. */
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
] as const;
export type DictionaryName = (typeof dictionaryNames)[number];

/** Every dictionary as its file has it. */
export const dictionaries: Readonly<Record<DictionaryName, unknown>> = Object.freeze(
  Object.fromEntries(
    dictionaryNames.map((name) => [name, readPackageJson(`schemas/dictionaries/${name}.json`)]),
  ) as Record<DictionaryName, unknown>,
);

const eventsFile = dictionaries.events as EventsFile;

/** Names of the events an export can ask for, without the aliases. */
export const eventNames: readonly string[] = [...eventsFile.device, ...eventsFile.user].toSorted();

/** The older singular names of service.md 7.2, and the event each stands for. */
export const eventAliases: ReadonlyMap<string, string> = new Map(Object.entries(eventsFile.legacyAliases));

/** Every selector by name, in the dictionary's order. */
export const selectors: ReadonlyMap<string, Selector> = new Map(
  (dictionaries.selectors as Selector[]).map((selector) => [selector.name, selector]),
);

/** Names of the time zones a request may be in. */
export const timezones: ReadonlySet<string> = new Set(dictionaries.timezones as string[]);

export const countries = dictionaries.countries as TitleDictionary;
export const verification = dictionaries.verification as TitleDictionary;
export const purchaseTypes = dictionaries['purchase-types'] as TitleDictionary;
export const rooted = dictionaries.rooted as TitleDictionary;
export const adMediators = dictionaries['ad-mediators'] as TitleDictionary;

/** The value of a title dictionary, whatever the id is; `__proto__` and the like are not ids. */
export function findTitle(dictionary: TitleDictionary, id: string): string | undefined {
  return Object.hasOwn(dictionary, id) ? dictionary[id] : undefined;
}
