import { loadFile } from '../frame/client.ts';
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
