import { hash } from 'node:crypto';
import { lineColumns, sortedEntries, type EventLine } from '../datasets/event-line.ts';
import { parseJsonDecimal } from '../datasets/json-number.ts';

/**
 * What an event says, in one form, so that its line in the stream, its row in the lake and a client's own request come
 * to the same digest: `[[column, value], ...]` as JSON without spaces, of every column of its line that has a value, in
 * the order of their names; numbers and times (Unix seconds, `received_at` milliseconds) as digits without needless
 * zeros, a map as its sorted entries.
 */

const columns = lineColumns.toSorted((a, b) => (a.name < b.name ? -1 : 1));
/** No decimal of a line has more places. */
const maxPlaces = 38;

function renderValue(type: string, value: unknown): unknown {
  if (typeof value === 'object') return sortedEntries(value);
  // Most are whole numbers; and a line has no other values than maps, numbers and texts.
  if (typeof value === 'number' && Number.isSafeInteger(value)) return `${value}`;
  const text = `${value as string | number}`;
  return type === 'VARCHAR' ? text : (parseJsonDecimal(text, maxPlaces) ?? text);
}

/** The values of an event by column: those of its line, or a row's; null is as good as absent. */
export type EventValues = Pick<EventLine, 'event_id'> & Readonly<Record<string, unknown>>;

function renderContent(values: EventValues): string {
  const content: unknown[] = [];
  for (const { name, type } of columns) {
    const value = values[name];
    if (value !== undefined && value !== null) content.push([name, renderValue(type, value)]);
  }
  return JSON.stringify(content);
}

/**
 * The digest of an event, 64 hex digits: SHA-256 over the salt, a newline and what the event says. Without the salt,
 * which only the receipt has, nobody can try out what it may have been.
 */
export function digestEvent(salt: string, values: EventValues): string {
  return hash('sha256', `${salt}\n${renderContent(values)}`, 'hex');
}

/** Reads the events of lines of NDJSON that the service has rendered. */
export function readLines(lines: Buffer): EventValues[] {
  return lines
    .toString()
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as EventValues);
}
