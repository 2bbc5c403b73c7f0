import { isRecord } from '../runtime/files/checksummed-json.ts';
import { createTimeReader } from '../runtime/time-format.ts';

/**
 * Changes an event of a file to an event of the API: moves members to fields, reads times. Pure. Its result decides the
 * keys of batches: the same event and options give the same text.
 */

/** Maps columns or paths of JSON to fields; an empty field drops one. `*` stands for all that are not fields. */
export type FieldMap = ReadonlyMap<string, string>;

/** Separates an object from the name of its member. */
export const dot = '.';
/** The name that stands for all other columns, and the field that makes each of them a parameter. */
export const others = '*';
export const toParameters = 'customEventParams.*';
const parameters = 'customEventParams';
const timeField = 'eventTimestamp';
/** Integers with more digits may be inexact as doubles. */
const exactDigits = 15;

export type JsonObject = Record<string, unknown>;

/** Defines a member, also one with the name `__proto__`. */
export function define(object: JsonObject, name: string, value: unknown): void {
  Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
}

/** Defines a field, or a member of an object: `customEventParams.level`. Returns false if it exists already. */
export function defineField(event: JsonObject, field: string, value: unknown): boolean {
  const at = field.indexOf(dot);
  const name = at === -1 ? field : field.slice(0, at);
  if (at === -1 || !Object.hasOwn(event, name)) define(event, name, at === -1 ? value : {});
  if (at === -1) return true;
  const object = event[name];
  if (!isRecord(object) || Object.hasOwn(object, field.slice(at + 1))) return false;
  define(object, field.slice(at + 1), value);
  return true;
}

const tokens = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Writes numbers of valid JSON as texts, which the API accepts: all, or those that a double may round. */
function quoteNumbers(text: string, all: boolean): string {
  return text.replaceAll(tokens, (token) =>
    token.startsWith('"') || (!all && token.replaceAll(/\D/g, '').length <= exactDigits) ? token : `"${token}"`,
  );
}

/** Removes and returns the value at a path, and the top member that it was in. */
function take(value: JsonObject, path: string): { readonly top: string; readonly taken: unknown } | undefined {
  if (Object.hasOwn(value, path)) {
    const taken = value[path];
    delete value[path];
    return { top: path, taken };
  }
  const at = path.indexOf(dot);
  const top = at === -1 ? path : path.slice(0, at);
  const inner = Object.hasOwn(value, top) ? value[top] : undefined;
  if (at === -1 || !isRecord(inner)) return undefined;
  const found = take(inner, path.slice(at + 1));
  return found === undefined ? undefined : { top, taken: found.taken };
}

/** Returns a parameter as text; undefined for null and an empty text. */
const toText = (value: unknown): unknown =>
  value === null || value === '' ? undefined : typeof value === 'boolean' ? String(value) : value;

function toTexts(object: JsonObject): JsonObject {
  const texts: JsonObject = {};
  for (const [name, value] of Object.entries(object))
    if (toText(value) !== undefined) define(texts, name, toText(value));
  return texts;
}

/** Moves members to fields by the map. Returns the name of a field that two members map to. */
function moveMembers(value: JsonObject, map: FieldMap, isField: (name: string) => boolean): JsonObject | string {
  const moved: [string, unknown][] = [];
  const opened = new Set<string>();
  for (const [path, field] of map) {
    const found = path === others ? undefined : take(value, path);
    if (found === undefined) continue;
    if (found.top !== path) opened.add(found.top);
    if (field !== '' && found.taken !== null) moved.push([field, found.taken]);
  }
  const rest = map.get(others);
  const event: JsonObject = {};
  for (const [name, member] of Object.entries(value)) {
    if (member === null || (!isField(name) && (opened.has(name) || rest === ''))) continue;
    if (isField(name) || rest === undefined) define(event, name, member);
    else moved.push([`${parameters}${dot}${name}`, member]);
  }
  for (const [field, member] of moved) {
    const isTwice = !field.includes(dot) && Object.hasOwn(event, field);
    if (isTwice || !defineField(event, field, member)) return field;
  }
  if (isRecord(event[parameters])) event[parameters] = toTexts(event[parameters]);
  return event;
}

export interface Mapping {
  readonly map: FieldMap;
  readonly timeFormat: string;
  /** Reports whether the event has a field of that name. */
  readonly isField: (name: string) => boolean;
}

/** The text of an event, or the reason why it is rejected. */
export type MappedEvent = { readonly json: string } | { readonly reason: string };

/** Creates the change of the events of a file. */
export function createMapping({ map, timeFormat, isField }: Mapping) {
  const isGiven = timeFormat !== 'auto';
  const readTime = timeFormat === 's' ? undefined : createTimeReader(timeFormat);

  /** Returns the seconds of a time; the value itself if it has that form already, or none that can be read. */
  function toSeconds(value: unknown): unknown {
    const text = typeof value === 'number' || typeof value === 'string' ? String(value).trim() : '';
    const seconds = readTime?.(text);
    if (seconds === undefined) return isGiven && readTime !== undefined ? undefined : value;
    return String(seconds) === text ? value : seconds;
  }

  /** Renders an event whose members are fields. */
  function render(event: JsonObject): MappedEvent {
    const time = event[timeField];
    if (time !== undefined) event[timeField] = toSeconds(time);
    return event[timeField] === undefined && time !== undefined
      ? { reason: `${timeField} is not a time of the form ${timeFormat}` }
      : { json: JSON.stringify(event) };
  }

  return {
    render,
    /** Maps a JSON object and its text. A text that needs no change is kept as it is. */
    mapJson(text: string, value: Readonly<JsonObject>): MappedEvent {
      const isMapped = map.size > 0;
      if (!isMapped && toSeconds(value[timeField]) === value[timeField]) return { json: text };
      const exact: unknown = JSON.parse(quoteNumbers(text, isMapped));
      const members = isRecord(exact) ? { ...exact } : {};
      const event = isMapped ? moveMembers(members, map, isField) : members;
      return typeof event === 'string' ? { reason: `has ${event} twice: by its own name and by --map` } : render(event);
    },
  };
}

export type EventMapping = ReturnType<typeof createMapping>;
