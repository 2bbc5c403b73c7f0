import { parseCells, separators, type Separator } from '../runtime/csv.ts';
import { getKind, getMethod } from '../datasets/dataset.ts';
import { eventFields, eventSchemas } from '../datasets/event-fields.ts';
import { AppError, describeError } from '../runtime/errors.ts';

/** Maps columns to fields; an empty name drops a column. */
type ColumnMap = ReadonlyMap<string, string>;

/** Separates an object from the name of its member. */
const dot = '.';

/** Maps a header to fields; undefined for dropped columns. Throws if the map does not match the header. */
function mapHeader(header: readonly string[], map: ColumnMap): readonly (string | undefined)[] {
  const unknown = [...map.keys()].find((column) => !header.includes(column));
  if (unknown !== undefined)
    throw new Error(`--map names the column ${unknown}, but the header has ${header.join(', ')}`);
  const fields = header.map((column) => {
    const field = map.get(column) ?? column;
    return field === '' ? undefined : field;
  });
  const twice = fields.find((field, index) => field !== undefined && fields.indexOf(field) !== index);
  if (twice !== undefined) throw new Error(`two columns map to the field ${twice}: change or drop one with --map`);
  const both = fields.find(
    (field) => field?.includes(dot) === true && fields.includes(field.slice(0, field.indexOf(dot))),
  );
  if (both !== undefined)
    throw new Error(
      `one column maps to ${both}, another one to all of ${both.slice(0, both.indexOf(dot))}: drop one with --map`,
    );
  return fields;
}

/**
 * Builds an event from cells as texts, without the empty ones. `customEventParams.level` is the member `level` of the
 * object `customEventParams`.
 */
export function toEvent(fields: readonly (string | undefined)[], cells: readonly string[]): Record<string, unknown> {
  const event: Record<string, unknown> = {};
  for (const [index, field] of fields.entries()) {
    const value = cells[index] ?? '';
    if (field === undefined || value === '') continue;
    const at = field.indexOf(dot);
    const name = at === -1 ? field : field.slice(0, at);
    if (at === -1) define(event, name, value);
    else {
      if (!Object.hasOwn(event, name)) define(event, name, {});
      define(event[name] as Record<string, unknown>, field.slice(at + 1), value);
    }
  }
  return event;
}

/** Defines a member, also one with the name `__proto__`. */
function define(object: Record<string, unknown>, name: string, value: unknown): void {
  Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
}

export interface CsvColumns {
  readonly separator: Separator;
  readonly fields: readonly (string | undefined)[];
}

export interface CsvHeaderResult {
  readonly event: string;
  readonly map: ColumnMap;
}

/** Fields that identify the user or device; the platform decides which are required. */
const identities = [
  'customUserId',
  'customPlatformUserId',
  'sezamUserId',
  ...eventFields.filter(({ schema }) => schema['x-device-id'] === true).map(({ name }) => name),
];
/** Maximum number of columns in a message. */
const shownColumns = 10;
const byteOrderMark = '\uFEFF';

/** Rejects columns that cannot form a valid event. Error: `usage`. */
function assertUseful(name: string, event: string, columns: readonly string[], fields: CsvColumns['fields']): void {
  const { kind } = getMethod(event);
  const { properties = {}, required = [] } = eventSchemas.get(kind) ?? {};
  const heads = fields.map((field) => field?.replace(/\..*/s, ''));
  const ids = identities.filter((id) => Object.hasOwn(properties, id));
  const lacking = required.filter((field) => !heads.includes(field));
  if (ids.length > 0 && !ids.some((id) => heads.includes(id)))
    lacking.unshift(getKind(kind).allowsDeviceOnly ? `any of ${ids.join(', ')}` : 'customUserId');
  if (lacking.length === 0) return;
  const unknown = columns.filter((_, index) => !Object.hasOwn(properties, heads[index] ?? ''));
  const shownNames = unknown.slice(0, shownColumns).map((column) => JSON.stringify(column));
  const more = unknown.length > shownColumns ? ', ...' : '';
  const what = unknown.length === 0 ? '' : `; unknown fields are ${shownNames.join(', ')}${more}`;
  throw new AppError('usage', `${name} has no column for ${lacking.join(', and none for ')} of ${event}${what}`, {
    hint: 'Pass --map COLUMN=FIELD for a column of another name, such as --map user=customUserId. No event was sent.',
  });
}

/**
 * Reads the header of a CSV. Error: `usage` if it is not one, the map does not match, or no valid event is possible.
 */
export function readHeader(name: string, { event, map }: CsvHeaderResult, bytes: Buffer | undefined): CsvColumns {
  const text = bytes?.toString('utf8').replace(byteOrderMark, '') ?? '';
  const unquoted = text.replaceAll(/"[^"]*"/g, '');
  const separator = separators.find((one) => unquoted.includes(one)) ?? ',';
  const columns = parseCells(text, separator);
  if (columns === undefined || text.trim() === '')
    throw new AppError('usage', `${name} has no CSV header in its first line`, {
      hint: 'Add a first line with the column names, separated by commas.',
    });
  try {
    const fields = mapHeader(columns, map);
    assertUseful(name, event, columns, fields);
    return { separator, fields };
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError('usage', `${name}: ${describeError(error)}`, { hint: 'Pass --map COLUMN=FIELD.' });
  }
}
