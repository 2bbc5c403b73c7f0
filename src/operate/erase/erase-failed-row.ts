import { rowFields } from '../../datasets/dictionaries.ts';
import { parseJsonInteger } from '../../datasets/json-number.ts';
import type { FailedEvent } from '../../lake/files/failed-events.ts';
import { ownFields } from '../load/file-fields.ts';
import { isIn, parseExactly, type TargetPart } from './erase-target.ts';

/**
 * Which bad rows of loaded files are to be erased. What is kept of a row is its text: its fields by their names in the
 * file as JSON, or a line that could not be read. Rather one bad row too many goes than one too few stays. Pure.
 */

type KeptLoad = NonNullable<FailedEvent['load']>;

/** A field of a row, by the name that the schema has for it; undefined for one that it does not know, or was dropped. */
interface Cell {
  readonly name: string | undefined;
  readonly value: unknown;
}

const isOwn = (name: string): boolean => ownFields.some((own) => own === name);

/** The fields of a row that is a JSON object; undefined where it is none. */
function readCells(line: string, map: NonNullable<KeptLoad['map']>): readonly Cell[] | undefined {
  let value: unknown;
  try {
    value = parseExactly(line);
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  return Object.entries(value).map(([name, cell]) => {
    const target = Object.hasOwn(map, name) ? map[name] : name;
    const isKnown = typeof target === 'string' && (rowFields.has(target) || isOwn(target));
    return { name: isKnown ? target : undefined, value: cell };
  });
}

/** The texts by which a cell may show an id. */
function textsOf(value: unknown): string[] {
  const text = String(value);
  const trimmed = text.trim();
  return [text, trimmed, parseJsonInteger(trimmed) ?? trimmed];
}

function hasId(value: unknown, { ids, wanted }: TargetPart): boolean {
  if (value === null || value === undefined) return false;
  if (typeof value === 'object') {
    const bytes = Buffer.from(JSON.stringify(value));
    return ids.some((id) => isIn(bytes, id));
  }
  return textsOf(value).some((text) => wanted.has(text));
}

/** Says whether a row has an id of a person: in the column of it, or in a field that the schema does not know. */
function showsPerson(cells: readonly Cell[], part: TargetPart): boolean {
  const columns = new Set(part.columns.map(({ name }) => name));
  return cells.some(({ name, value }) => {
    if (name !== undefined) {
      const column = rowFields.get(name)?.['x-column'];
      if (column === undefined || !columns.has(column)) return false;
    }
    return hasId(value, part);
  });
}

/** Says whether a row is of one of some apps; undefined where it does not say of which it is. */
function isOfApp(cells: readonly Cell[], { ids }: TargetPart, given: number | undefined): boolean | undefined {
  const find = (wanted: string): string => {
    const value: unknown = cells.find(({ name }) => name === wanted)?.value ?? '';
    return typeof value === 'string' ? value.trim() : JSON.stringify(value);
  };
  const own = find('idApp');
  if (own !== '') {
    const app = parseJsonInteger(own);
    return app === undefined ? undefined : ids.includes(app);
  }
  if (given === undefined || find('SDKKey') !== '') return undefined;
  return ids.includes(String(given));
}

/** Says whether an id stands in a line that is no JSON, as it is or as CSV or JSON writes it. */
function isInLine(line: string, { ids }: TargetPart): boolean {
  const bytes = Buffer.from(line);
  return ids.some((id) => isIn(bytes, id) || bytes.includes(id.replaceAll('"', '""')));
}

/** Says whether the number of an app stands in a line that is no JSON. */
function isAppInLine(line: string, { ids }: TargetPart): boolean {
  const numbers = new Set(line.match(/\d+/g) ?? []);
  return ids.some((id) => numbers.has(id));
}

const isAppPart = ({ columns }: TargetPart): boolean => columns.some(({ name }) => name === 'id_app');

/**
 * Says whether a bad row of a load is to be erased. One that cannot be read is, when an id of the person stands in it
 * anywhere; one that does not say of which app it is may be of any app that the person is erased from.
 */
export function matchesFailedRow({ line }: FailedEvent, load: KeptLoad, parts: readonly TargetPart[]): boolean {
  const people = parts.filter((part) => !isAppPart(part));
  const apps = parts.find(isAppPart);
  const cells = readCells(line, load.map ?? {});
  if (cells === undefined) {
    if (people.length > 0) return people.every((part) => isInLine(line, part));
    return apps !== undefined && isAppInLine(line, apps);
  }
  if (!people.every((part) => showsPerson(cells, part))) return false;
  return apps === undefined || (isOfApp(cells, apps, load.idApp) ?? people.length > 0);
}
