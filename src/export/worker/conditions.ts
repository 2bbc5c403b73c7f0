import type { Dataset } from '../../datasets/dataset.ts';
import { findDictionary, rowFields } from '../../datasets/dictionaries.ts';
import { eventFields } from '../../datasets/event-fields.ts';
import type { FieldSchema } from '../../datasets/field-schema.ts';
import type { StoredExport, Subject } from '../../datasets/pipeline-file.ts';
import type { SegmentKind } from '../../segments/segment-store.ts';
import type { ExportSpec, SecondsSpan } from '../jobs/export-spec.ts';
import { filesSql, type BoundValue } from './export-query.ts';
import { zoneDate } from './selector-sql.ts';

/**
 * A condition that a column's value is in a set; each value a parameter of its own, so that files are skipped by it.
 */
export function inSet(
  column: string,
  prefix: string,
  values: readonly string[],
): { condition: string; values: Record<string, string> } {
  const names = values.map((_value, index) => `${prefix}${index}`);
  return {
    condition: `${column} IN (${names.map((name) => `$${name}`).join(', ')})`,
    values: Object.fromEntries(names.map((name, index) => [name, values[index] ?? ''])),
  };
}

/**
 * The device identifiers, the first that is not empty first: what identifies the device of an event (docs/api.md).
 */
const deviceFields = ['instanceId', 'lvid', 'gaid', 'androidId', 'appSetId', 'idfa', 'iosVendorId'];
const deviceColumns = deviceFields.map((name) => {
  const field = eventFields.find((known) => known.name === name && known.schema['x-device-id'] === true);
  if (field === undefined) throw new Error(`schemas: ${name} is no device identifier`);
  return { name, column: field.schema['x-column'] };
});

/** Their columns. */
const deviceColumnNames: readonly string[] = deviceColumns.map(({ column }) => column);

/** SQL for the text that identifies the subject of an event within its app; NULL where it has none. */
export function subjectSql(subject: Subject): string {
  if (subject === 'user') return "nullif(events.custom_user_id, '')";
  const cases = deviceColumns.map(
    ({ name, column }) => `WHEN events.${column} <> '' THEN '${name}:' || events.${column}`,
  );
  return `CASE ${cases.join(' ')} END`;
}

/**
 * The conditions on which rows of the table an export event stands for. A field with a default has that where the row,
 * or a table of an earlier version, does not say.
 */
export function storedConditions(
  { table, fields, columns }: Dataset,
  { kind, where = {} }: StoredExport,
  values: Record<string, BoundValue>,
): string[] {
  if (kind !== undefined) values['kind'] = kind;
  const ofFields = Object.entries(where).map(([name, value], index) => {
    const field = fields.find((known) => known.name === name);
    if (field === undefined) throw new Error(`${table} has no field ${name}`);
    const { 'x-column': column, default: absent } = field.schema;
    if (!columns.some((known) => known.name === column)) return absent === value ? 'true' : 'false';
    values[`where_${index}`] = typeof value === 'number' ? BigInt(value) : value;
    const stored = absent === undefined ? `events.${column}` : `coalesce(events.${column}, ${absent})`;
    return `${stored} = $where_${index}`;
  });
  return [...(kind === undefined ? [] : ['events.kind = $kind']), ...ofFields];
}

/** Whether a field's dictionary has `0` for what is unknown: an empty value stands for it, and for nothing else. */
function isZeroUnknown(schema: FieldSchema): boolean {
  return findDictionary(schema)?.['0']?.toLowerCase() === 'unknown';
}

/**
 * The conditions of the filters on fields, by the columns that the dataset has. Undefined: no row can pass, since the
 * dataset has no such column.
 */
export function fieldConditions(
  { columns }: Dataset,
  { filters }: ExportSpec,
  values: Record<string, BoundValue>,
): string[] | undefined {
  const conditions: string[] = [];
  for (const [filter, [name, wanted]] of Object.entries(filters).entries()) {
    const schema = rowFields.get(name);
    if (schema === undefined) throw new Error(`no field ${name}`);
    const column = schema['x-column'];
    const emptyPasses = isZeroUnknown(schema) && wanted.includes('0');
    if (!columns.some((known) => known.name === column)) {
      if (emptyPasses) continue;
      return undefined;
    }
    const isText = schema['x-column-type'] === 'VARCHAR';
    const names = wanted.map((value, index) => {
      values[`filter_${filter}_${index}`] = isText ? value : BigInt(value);
      return `$filter_${filter}_${index}`;
    });
    const condition = `events.${column} IN (${names.join(', ')})`;
    conditions.push(emptyPasses ? `(${condition} OR events.${column} IS NULL)` : condition);
  }
  return conditions;
}

/** The conditions on who an event must name. */
export function requirement(event: StoredExport): string[] {
  // An empty id is no user; earlier versions stored it as it came.
  if (event.requires === 'user') return ["events.custom_user_id <> ''"];
  if (event.requires === 'device')
    return [`(${deviceColumns.map(({ column }) => `events.${column} IS NOT NULL`).join(' OR ')})`];
  return [];
}

/** Adds the bounds of a time column to the conditions. */
export function spanConditions(
  column: string,
  prefix: string,
  { fromSeconds, beforeSeconds }: SecondsSpan,
  values: Record<string, BoundValue>,
): string[] {
  const bound = (name: string, sign: string, seconds: number | undefined): string[] => {
    if (seconds === undefined) return [];
    values[`${prefix}${name}`] = BigInt(seconds) * 1_000_000n;
    return [`events.${column} ${sign} make_timestamptz(CAST($${prefix}${name} AS BIGINT))`];
  };
  return [...bound('From', '>=', fromSeconds), ...bound('Before', '<', beforeSeconds)];
}

/** The condition that a row became available after a moment, Unix milliseconds. */
export function sinceConditions(afterMs: number | undefined, values: Record<string, BoundValue>): string[] {
  if (afterMs === undefined) return [];
  values['since'] = BigInt(afterMs) * 1000n;
  return ['events.available_at > make_timestamptz(CAST($since AS BIGINT))'];
}

/**
 * The condition on the local date, where the span alone would let rows of another day in. It is the selector's own
 * expression.
 */
export function dayConditions({ localDates, timezone }: ExportSpec, values: Record<string, BoundValue>): string[] {
  if (localDates === undefined) return [];
  Object.assign(values, { timezone, dateFrom: localDates.from, dateTo: localDates.to });
  return [`${zoneDate('event_time')} BETWEEN CAST($dateFrom AS DATE) AND CAST($dateTo AS DATE)`];
}

/** The conditions on parameters of custom events. */
export function paramConditions({ params = [] }: ExportSpec, values: Record<string, BoundValue>): string[] {
  return params.map((param, index) => {
    const name = `param${index}`;
    const wanted = inSet('value', `${name}Value`, param.values);
    Object.assign(values, { [name]: param.name }, wanted.values);
    return `len(list_filter(map_extract(events.custom_event_params, $${name}), lambda value: ${wanted.condition})) > 0`;
  });
}

/**
 * What ids are compared by: 128 bits, of which no two ids have the same by chance. The engine holds the whole set in
 * memory, and of texts it would hold twice the bytes: two million of them did not fit into 256 MB.
 */
const keySql = (id: string): string => `md5_number(${id})`;

/** The relation of a segment's keys; its file binds as `$segment`. */
const segmentSql = `(SELECT ${keySql('id')} AS key FROM read_parquet($segment, hive_partitioning = false))`;

/**
 * SQL of the join by which only rows of a segment stay: each once, whatever the number of its ids that are in the
 * segment. It follows the relation `events` in FROM, and loses the order of the rows. `conditions` are those on `events`
 * that the query has beside it: what they leave out is not compared.
 *
 * One join on one set of ids: a comparison for each device column would hold the set in memory once for each.
 */
export function segmentJoin(kind: SegmentKind, { columns }: Dataset, conditions: readonly string[]): string {
  if (kind === 'custom')
    return `SEMI JOIN ${segmentSql} AS segment ON ${keySql('events.custom_user_id')} = segment.key`;
  const present = new Set(columns.map(({ name }) => name));
  const ids = deviceColumnNames.filter((name) => present.has(name)).map((name) => `events.${name}`);
  const given = `list_filter(CAST([${ids.join(', ')}] AS VARCHAR[]), lambda id: id IS NOT NULL)`;
  return `SEMI JOIN (
    SELECT DISTINCT named.file_index, named.file_row_number FROM (
      SELECT events.file_index, events.file_row_number, unnest(list_transform(${given}, lambda id: ${keySql('id')})) AS key
      FROM ${filesSql} AS events WHERE ${['true', ...conditions].join(' AND ')}
    ) AS named SEMI JOIN ${segmentSql} AS segment ON named.key = segment.key
  ) AS chosen ON events.file_index = chosen.file_index AND events.file_row_number = chosen.file_row_number`;
}
