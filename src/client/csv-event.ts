import { parseCells, separators, type Separator } from '../runtime/csv.ts';
import { getKind, getMethod } from '../datasets/dataset.ts';
import { eventFields, eventSchemas } from '../datasets/event-fields.ts';
import { AppError, describeError } from '../runtime/errors.ts';
import { defineField, dot, others, toParameters, type FieldMap, type JsonObject } from './event-mapping.ts';

/** Maps a header to fields; undefined for dropped columns. Throws if the map does not match the header. */
function mapHeader(
  header: readonly string[],
  map: FieldMap,
  isField: (name: string) => boolean,
): readonly (string | undefined)[] {
  const unknown = [...map.keys()].find((column) => column !== others && !header.includes(column));
  if (unknown !== undefined)
    throw new Error(`--map names the column ${unknown}, but the header has ${header.join(', ')}`);
  const rest = map.get(others);
  const fields = header.map((column) => {
    const field = map.get(column) ?? column;
    if (map.has(column) || rest === undefined || isField(column)) return field === '' ? undefined : field;
    return rest === '' ? undefined : `${toParameters.slice(0, -others.length)}${column}`;
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
export function toEvent(fields: readonly (string | undefined)[], cells: readonly string[]): JsonObject {
  const event: JsonObject = {};
  for (const [index, field] of fields.entries()) {
    const value = cells[index] ?? '';
    if (field !== undefined && value !== '') defineField(event, field, value);
  }
  return event;
}

export interface CsvColumns {
  readonly separator: Separator;
  readonly fields: readonly (string | undefined)[];
}

export interface CsvHeaderResult {
  readonly event: string;
  readonly map: FieldMap;
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

/** Usual names of the columns of a table of events, without case and separators. */
const usualNames: Readonly<Record<string, RegExp>> = {
  customUserId: /^(custom)?(user|player|customer|account|client|u)?id$|^(user|player|customer)(name)?$/,
  customEventName: /^(event|eventname|eventtype|action|name|type)$/,
  eventTimestamp: /^(event|created|server|client)?(time|timestamp|ts|date|datetime|at)(utc|ms)?$/,
};

/** Reports whether a kind of event has a field, also as `customEventParams.NAME`. */
export function createIsField(event: string): (name: string) => boolean {
  const { properties = {} } = eventSchemas.get(getMethod(event).kind) ?? {};
  return (name) => Object.hasOwn(properties, name.replace(/\..*/s, ''));
}

/** Proposes the options for columns of usual names: each field from one column, all others as parameters. */
function proposeMap(columns: readonly string[], isField: (name: string) => boolean): string | undefined {
  const wanted = Object.entries(usualNames).filter(([field]) => isField(field) && !columns.includes(field));
  const found = wanted.flatMap(([field, names]) => {
    const column = columns.find((one) => !isField(one) && names.test(one.toLowerCase().replaceAll(/[^a-z]/g, '')));
    return column === undefined ? [] : [`${column}=${field}`];
  });
  if (found.length === 0) return undefined;
  const rest = isField(toParameters) ? [`${others}=${toParameters}`] : [];
  return [...found, ...rest].map((pair) => `--map ${/^[\w=.-]+$/.test(pair) ? pair : `'${pair}'`}`).join(' ');
}

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
    hint: `Pass ${proposeMap(columns, createIsField(event)) ?? '--map COLUMN=FIELD for a column of another name, such as --map user=customUserId'}. No event was sent.`,
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
    const fields = mapHeader(columns, map, createIsField(event));
    assertUseful(name, event, columns, fields);
    return { separator, fields };
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError('usage', `${name}: ${describeError(error)}`, { hint: 'Pass --map COLUMN=FIELD.' });
  }
}
