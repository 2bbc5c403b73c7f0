import { signal } from '@preact/signals';
import { loadJson } from '../shell/client.ts';
import { session } from '../shell/session.ts';
import type { Activity } from '../components/activity.ts';
import type { Labels } from '../components/labels.tsx';
import { addDays, ownZone, todayIn } from '../components/zones.ts';
import type { FormatEndings } from './snippets.ts';

/** The content of `/console/dictionary.json`. */
export interface Dictionary {
  readonly events: readonly EventEntry[];
  /** Groups of events in their order. */
  readonly eventGroups: readonly string[];
  readonly selectors: readonly SelectorEntry[];
  readonly filters: readonly FilterEntry[];
  readonly timezones: readonly string[];
  readonly timezone: string;
  readonly formats: readonly FormatEntry[];
  readonly compressions: readonly string[];
  /** Forms of CSV for spreadsheets. */
  readonly dialects?: readonly string[];
  /** Events that can have a column per parameter, and the most such columns. */
  readonly paramColumns?: { readonly events: readonly string[]; readonly limit: number };
  /** Address of the import area that clients see; absent if it is only known by its port. */
  readonly importUrl?: string;
  readonly importPort: number;
}

export interface FormatEntry extends FormatEndings {
  readonly title: string;
  /** The default compression. */
  readonly usual: string;
}

export interface EventEntry {
  readonly name: string;
  readonly about: string;
  readonly group: string;
  /** Kinds of the data overview whose rows it has or is derived from. */
  readonly kinds: readonly string[];
  /** Whether it has each row of its kinds. */
  readonly isAll: boolean;
  /** Columns that can have values; all others are empty. */
  readonly selectors: readonly string[];
  readonly filters: readonly string[];
}

export interface SelectorEntry {
  readonly name: string;
  /** Title for people; files have the name. */
  readonly title: string;
  readonly type: string;
  readonly meaning: string;
  readonly group: string;
}

export interface FilterEntry {
  readonly name: string;
  readonly meaning: string;
  readonly shape: 'one' | 'set' | 'list';
  readonly choices?: Readonly<Record<string, string>>;
  readonly isText: boolean;
  /** Whether its values identify a person or a device. */
  readonly isPerson?: true;
}

let loaded: Promise<Dictionary> | undefined;

/** Loads the dictionary once for all pages. */
export function loadDictionary(): Promise<Dictionary> {
  loaded ??= loadJson<Dictionary>('/console/dictionary.json').catch((error: unknown) => {
    loaded = undefined;
    throw error;
  });
  return loaded;
}

/** Comparisons of a parameter with values: the argument's name and the title. */
export const paramComparisons = {
  params: 'equals',
  paramsNot: 'does not equal',
  paramsContain: 'contains',
  paramsGreater: 'is greater than',
  paramsLess: 'is less than',
  paramsSet: 'is set',
} as const;
export type ParamComparison = keyof typeof paramComparisons;
export const comparisons = [
  'params',
  'paramsNot',
  'paramsContain',
  'paramsGreater',
  'paramsLess',
  'paramsSet',
] as const satisfies readonly ParamComparison[];

export interface ParamDraft {
  readonly name: string;
  /** Absent in drafts of earlier versions: equals. */
  readonly comparison?: ParamComparison;
  /** As typed, one per line; empty ones have no effect. */
  readonly values: readonly string[];
}

/** An export request that is being filled in. */
export interface Draft extends Labels {
  readonly event: string;
  readonly timezone: string;
  /** `days`: whole days; `moments`: times to the second. Both in the draft's time zone. */
  readonly period: {
    readonly kind: 'days' | 'moments';
    readonly from: string;
    readonly to: string;
    /** The Unix seconds of a repeated export, if its times are ambiguous (clock change). */
    readonly exact?: { readonly from: number; readonly to: number };
  };
  readonly selectors: readonly string[];
  /** Values of the added filters by name; filters without values have no effect. */
  readonly filters: Readonly<Record<string, readonly string[]>>;
  readonly params: readonly ParamDraft[];
  readonly format: string;
  /** '' for the format's default. */
  readonly compression: string;
  readonly isByTime: boolean;
  /** Form of CSV for spreadsheets; '' for programs. */
  readonly dialect: string;
  /** Whether each parameter has a column. */
  readonly hasParamColumns: boolean;
  /** Arguments of a repeated export that the form has no field for. */
  readonly others: Readonly<Record<string, string | readonly string[]>>;
}

export interface DraftProps {
  readonly draft: Draft;
  readonly dictionary: Dictionary;
  /** The events of the account; undefined until they are counted. */
  readonly activity: Activity | undefined;
  /** The error of this part of the form. */
  readonly problem?: string | undefined;
}

/** The key contains the user, so that another user in the same tab has another draft. */
function draftKey(): string {
  const of = session.value;
  return `tributary.draft.${typeof of === 'object' ? of.idUser : ''}`;
}

const columnsKey = (event: string): string => `tributary.columns.${event}`;

/** The current draft; undefined until the page was first shown. It is kept when the page is reloaded. */
export const draft = signal<Draft | undefined>(undefined);

/** Reads a stored JSON value; undefined for unreadable ones. */
function read(storage: Storage, key: string): unknown {
  try {
    return JSON.parse(storage.getItem(key) ?? 'null') ?? undefined;
  } catch {
    return undefined;
  }
}

/** Returns the columns that were last selected for an event, or its default columns. */
export function columnsFor(event: string, { events, selectors }: Dictionary): readonly string[] {
  const possible = new Set(events.find(({ name }) => name === event)?.selectors);
  const stored = read(localStorage, columnsKey(event));
  const remembered = (Array.isArray(stored) ? stored : []).filter((name): name is string =>
    selectors.some((selector) => selector.name === name),
  );
  if (remembered.length > 0) return remembered;
  const always = ['tsEvent', 'eventId', 'idApp', 'customUserId'];
  const common = new Set(['dtEvent', 'dateTimeEvent', 'tsInsert', 'countCustomEvent', ...always]);
  const own = selectors.filter(({ name, group }) => group === 'event' && !common.has(name)).map(({ name }) => name);
  return [...always, ...own].filter((name) => possible.has(name));
}

/** Replaces the draft. */
export function startFrom(changed: Draft): void {
  if (draft.value === undefined) isPeriodNew = false;
  draft.value = changed;
  sessionStorage.setItem(draftKey(), JSON.stringify(changed));
}

/** Moves the first period of a draft to other days, once, unless it was changed. */
export function movePeriod(from: string, to: string): void {
  if (!isPeriodNew) return;
  changeDraft({ period: { kind: 'days', from, to } });
}

/** Changes members of the draft and stores it; the columns of an event are kept permanently. */
export function changeDraft(change: Partial<Draft>): void {
  const { value } = draft;
  if (value === undefined) return;
  if (change.period !== undefined) isPeriodNew = false;
  startFrom({ ...value, ...change });
  if (change.selectors !== undefined && change.selectors.length > 0)
    localStorage.setItem(columnsKey(change.event ?? value.event), JSON.stringify(change.selectors));
}

/** Selects another event with its last columns, and keeps the filters that it has. */
export function chooseEvent(event: string, dictionary: Dictionary): void {
  const fitting = new Set(dictionary.events.find(({ name }) => name === event)?.filters);
  const { filters = {}, params = [] } = draft.value ?? {};
  changeDraft({
    event,
    selectors: columnsFor(event, dictionary),
    filters: Object.fromEntries(Object.entries(filters).filter(([name]) => fitting.has(name))),
    params: fitting.has('eventName') ? params : [],
    hasParamColumns: draft.value?.hasParamColumns === true && dictionary.paramColumns?.events.includes(event) === true,
    others: {},
  });
}

/** Whether the draft has its first period, which may move to the newest events. */
let isPeriodNew = false;

/** Restores the stored draft, or creates one of the last seven days. */
export function openDraft(dictionary: Dictionary): void {
  if (draft.value !== undefined) return;
  const left = read(sessionStorage, draftKey()) as Partial<Draft> | undefined;
  const isKnown = dictionary.events.some(({ name }) => name === left?.event);
  isPeriodNew = !isKnown;
  // A draft of another version may lack members.
  draft.value = { ...emptyDraft(dictionary), ...(isKnown ? left : {}) };
}

export function emptyDraft(dictionary: Dictionary, event = 'customEvents'): Draft {
  const timezone = dictionary.timezones.includes(ownZone) ? ownZone : dictionary.timezone;
  const today = todayIn(timezone);
  return {
    event,
    timezone,
    period: { kind: 'days', from: addDays(today, -6), to: today },
    selectors: columnsFor(event, dictionary),
    filters: {},
    params: [],
    format: 'csv',
    compression: '',
    isByTime: false,
    dialect: '',
    hasParamColumns: false,
    name: '',
    deliverTo: '',
    others: {},
  };
}
