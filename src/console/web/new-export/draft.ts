import { signal } from '@preact/signals';
import { loadFile } from '../frame/client.ts';
import { session } from '../frame/session.ts';
import { addDays, ownZone, todayIn } from '../parts/zones.ts';
import type { FormatEndings } from './snippets.ts';

/** What can be ordered, as `/console/dictionary.json` has it. */
export interface Dictionary {
  readonly events: readonly EventEntry[];
  readonly selectors: readonly SelectorEntry[];
  readonly filters: readonly FilterEntry[];
  readonly timezones: readonly string[];
  readonly timezone: string;
  readonly formats: readonly FormatEntry[];
  readonly compressions: readonly string[];
}

export interface FormatEntry extends FormatEndings {
  readonly title: string;
  /** The compression of files where none is named. */
  readonly usual: string;
}

export interface EventEntry {
  readonly name: string;
  readonly about: string;
  /** Those that can have values; the others are empty columns. */
  readonly selectors: readonly string[];
  readonly filters: readonly string[];
}

export interface SelectorEntry {
  readonly name: string;
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
}

let loaded: Promise<Dictionary> | undefined;

/** Loads the dictionary, once for all pages. */
export function loadDictionary(): Promise<Dictionary> {
  loaded ??= loadFile<Dictionary>('/console/dictionary.json').catch((error: unknown) => {
    loaded = undefined;
    throw error;
  });
  return loaded;
}

/** A filter on a parameter of custom events. */
export interface ParamDraft {
  readonly name: string;
  /** As they were typed, a line each; empty ones are none. */
  readonly values: readonly string[];
}

/** An export as far as it has been filled in. */
export interface Draft {
  readonly event: string;
  readonly timezone: string;
  /** `days`: whole days; `moments`: from one second to another. Both as the clocks of the zone show them. */
  readonly period: {
    readonly kind: 'days' | 'moments';
    readonly from: string;
    readonly to: string;
    /** Of an export that is repeated: Unix seconds, where the clocks show them twice and the times would mean others. */
    readonly exact?: { readonly from: number; readonly to: number };
  };
  /** In the order of the columns. */
  readonly selectors: readonly string[];
  /** The filters that were added, by their names; those without values do nothing yet. */
  readonly filters: Readonly<Record<string, readonly string[]>>;
  readonly params: readonly ParamDraft[];
  readonly format: string;
  /** '': as the format is by itself. */
  readonly compression: string;
  /** Rows in the order of the event's time. */
  readonly isByTime: boolean;
  /** What the form has no field for, of an export that is repeated: arguments by their names. */
  readonly others: Readonly<Record<string, string | readonly string[]>>;
}

/** What each part of the form is given. */
export interface OrderProps {
  readonly draft: Draft;
  readonly dictionary: Dictionary;
  /** What is missing or wrong in the part. */
  readonly problem?: string | undefined;
}

/** Whoever signs in next in the same tab finds a draft of their own. */
function draftKey(): string {
  const of = session.value;
  return `tributary.draft.${typeof of === 'object' ? of.idUser : ''}`;
}

const columnsKey = (event: string): string => `tributary.columns.${event}`;

/** The export that is being filled in; undefined until the page was first shown. It outlives a reload of the page. */
export const draft = signal<Draft | undefined>(undefined);

/** What this program itself has stored; undefined for nothing, and for what it cannot read. */
function read(storage: Storage, key: string): unknown {
  try {
    return (JSON.parse(storage.getItem(key) ?? 'null') as unknown) ?? undefined;
  } catch {
    return undefined;
  }
}

/** The columns that were last chosen for an event, or those that most want of it. */
export function columnsFor(event: string, { events, selectors }: Dictionary): readonly string[] {
  const possible = new Set(events.find(({ name }) => name === event)?.selectors);
  const stored = read(localStorage, columnsKey(event));
  const remembered = (Array.isArray(stored) ? stored : []).filter((name): name is string =>
    selectors.some((selector) => selector.name === name),
  );
  if (remembered.length > 0) return remembered;
  const always = ['tsEvent', 'eventId', 'idApp', 'customUserId'];
  const common = new Set(['dtEvent', 'tsInsert', 'countCustomEvent', ...always]);
  const own = selectors.filter(({ name, group }) => group === 'event' && !common.has(name)).map(({ name }) => name);
  return [...always, ...own].filter((name) => possible.has(name));
}

/** Takes a draft from elsewhere: of an export that is to be ordered again. */
export function startFrom(changed: Draft): void {
  draft.value = changed;
  sessionStorage.setItem(draftKey(), JSON.stringify(changed));
}

/** Changes members of the draft, and keeps it for the next visit; the columns of an event for good. */
export function changeDraft(change: Partial<Draft>): void {
  const { value } = draft;
  if (value === undefined) return;
  startFrom({ ...value, ...change });
  if (change.selectors !== undefined && change.selectors.length > 0)
    localStorage.setItem(columnsKey(change.event ?? value.event), JSON.stringify(change.selectors));
}

/** Chooses another event: with the columns that it had, and with those of the filters that fit it. */
export function chooseEvent(event: string, dictionary: Dictionary): void {
  const fitting = new Set(dictionary.events.find(({ name }) => name === event)?.filters);
  const { filters = {}, params = [] } = draft.value ?? {};
  changeDraft({
    event,
    selectors: columnsFor(event, dictionary),
    filters: Object.fromEntries(Object.entries(filters).filter(([name]) => fitting.has(name))),
    params: fitting.has('eventName') ? params : [],
    others: {},
  });
}

/** Begins with the draft that was left, or with a new one: the last seven days in the reader's zone. */
export function openDraft(dictionary: Dictionary): void {
  if (draft.value !== undefined) return;
  const left = read(sessionStorage, draftKey()) as Partial<Draft> | undefined;
  const isKnown = dictionary.events.some(({ name }) => name === left?.event);
  // Another version may have left it, without what this one has besides.
  draft.value = { ...emptyDraft(dictionary), ...(isKnown ? left : {}) };
}

/** A draft of which only the event has been chosen. */
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
    others: {},
  };
}
