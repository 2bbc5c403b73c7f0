import { hash } from 'node:crypto';
import { lineColumns, sortedEntries, type EventLine } from '../datasets/event-line.ts';
import { parseJsonDecimal } from '../datasets/json-number.ts';

/**
 * Digest of an event, equal for its line in the stream, its row in the lake and a client's request. The digested form
 * is `[[column, value], ...]` as JSON without spaces, of every column of its line with a value, ordered by name;
 * numbers and times (Unix seconds, `received_at` ms) as digits without needless zeros, a map as its sorted entries.
 */

const columns = lineColumns.toSorted((a, b) => (a.name < b.name ? -1 : 1));
const maxPlaces = 38;

function renderValue(type: string, value: unknown): unknown {
  if (typeof value === 'object') return sortedEntries(value);
  // Most values are integers; a line has only maps, numbers and texts.
  if (typeof value === 'number' && Number.isSafeInteger(value)) return `${value}`;
  const text = `${value as string | number}`;
  return type === 'VARCHAR' ? text : (parseJsonDecimal(text, maxPlaces) ?? text);
}

/** The values of an event by column, of its line or its row; null counts as absent. */
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
 * Returns the digest of an event, 64 hex digits: SHA-256 over the salt, a newline and the event. Without the salt,
 * which only the receipt has, the event cannot be guessed.
 */
export function digestEvent(salt: string, values: EventValues): string {
  return hash('sha256', `${salt}\n${renderContent(values)}`, 'hex');
}

export function parseRenderedLines(lines: Buffer): EventValues[] {
  return lines
    .toString()
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as EventValues);
}
