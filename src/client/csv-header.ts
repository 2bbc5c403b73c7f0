import { getKind, getMethod } from '../datasets/dataset.ts';
import { eventFields, eventSchemas } from '../datasets/event-fields.ts';
import { AppError, describeError } from '../runtime/errors.ts';
import { findSeparator, mapHeader, parseCells, type ColumnMap, type Separator } from './csv-event.ts';

/** What the header of a CSV says of the records behind it. */
export interface CsvColumns {
  readonly separator: Separator;
  /** The field that each column becomes; undefined: none. */
  readonly fields: readonly (string | undefined)[];
}

/** How the header of an input is read. */
export interface HeaderReading {
  /** Of the input, for errors. */
  readonly name: string;
  /** The method for one event. */
  readonly event: string;
  readonly map: ColumnMap;
}

/** The fields that say whom an event is about, on one platform or another: the service knows which it is. */
const identities = [
  'customUserId',
  'customPlatformUserId',
  'sezamUserId',
  ...eventFields.filter(({ schema }) => schema['x-device-id'] === true).map(({ name }) => name),
];
/** Columns that a message names. */
const shownColumns = 10;
const byteOrderMark = '\uFEFF';

/** Refuses columns of which no event can be made that the service takes, whatever is in them. Error: `usage`. */
function assertUseful({ name, event }: HeaderReading, columns: readonly string[], fields: CsvColumns['fields']): void {
  const { kind } = getMethod(event);
  const { properties = {}, required = [] } = eventSchemas.get(kind) ?? {};
  const heads = fields.map((field) => field?.replace(/\..*/s, ''));
  const ids = identities.filter((id) => Object.hasOwn(properties, id));
  const lacking = required.filter((field) => !heads.includes(field));
  if (ids.length > 0 && !ids.some((id) => heads.includes(id)))
    lacking.unshift(getKind(kind).ofDevice ? `any of ${ids.join(', ')}` : 'customUserId');
  if (lacking.length === 0) return;
  const unknown = columns.filter((_, index) => !Object.hasOwn(properties, heads[index] ?? ''));
  const shown = unknown.slice(0, shownColumns).map((column) => JSON.stringify(column));
  const more = unknown.length > shownColumns ? ', ...' : '';
  const what = unknown.length === 0 ? '' : `; no fields are its columns ${shown.join(', ')}${more}`;
  throw new AppError('usage', `${name} has no column for ${lacking.join(', and none for ')} of ${event}${what}`, {
    hint: 'Write --map COLUMN=FIELD for a column of another name, such as --map user=customUserId; nothing was sent.',
  });
}

/**
 * Reads the header of a CSV. Error: `usage` where it is none, the map does not suit it, or no event can become of what
 * is below it.
 */
export function readHeader(reading: HeaderReading, bytes: Buffer | undefined): CsvColumns {
  const { name, map } = reading;
  const text = bytes?.toString('utf8').replace(byteOrderMark, '') ?? '';
  const separator = findSeparator(text);
  const columns = parseCells(text, separator);
  if (columns === undefined || text.trim() === '')
    throw new AppError('usage', `${name} has no header of CSV in its first line`, {
      hint: 'Put the names of the columns there, with commas between them.',
    });
  try {
    const fields = mapHeader(columns, map);
    assertUseful(reading, columns, fields);
    return { separator, fields };
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError('usage', `${name}: ${describeError(error)}`, { hint: 'Write --map column=field.' });
  }
}
