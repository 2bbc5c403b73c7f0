import type { Dataset } from '../../datasets/dataset.ts';
import { findDictionary, rowFields } from '../../datasets/dictionaries.ts';
import type { ColumnType, FieldSchema } from '../../datasets/field-schema.ts';
import type { StoredExport } from '../../datasets/pipeline-file.ts';
import { deviceColumns } from '../../datasets/subject.ts';
import type { SegmentKind } from '../../segments/segment-store.ts';
import { typedSql } from '../../lake/catalogue/parameter-types.ts';
import type { ExportSpec, ParamFilter, SecondsSpan } from '../jobs/export-spec.ts';
import { filesSql, type BoundValue } from './export-query.ts';
import { zoneDate } from './selector-sql.ts';

/**
 * Builds a condition that a column of a type is in a set; each value is a parameter, so that row groups can be skipped.
 */
export function inSet(
  column: string,
  prefix: string,
  set: readonly string[],
  values: Record<string, BoundValue>,
  type: ColumnType = 'VARCHAR',
): string {
  const names = set.map((value, index) => {
    const name = `${prefix}${index}`;
    const isWide = type.startsWith('DECIMAL');
    values[name] = type === 'VARCHAR' || isWide ? value : BigInt(value);
    return isWide ? `CAST($${name} AS ${type})` : `$${name}`;
  });
  return `${column} IN (${names.join(', ')})`;
}

const deviceColumnNames: readonly string[] = deviceColumns.map(({ column }) => column);

/** Builds the conditions on the rows of an export event. Old tables may lack a field, which then has its default. */
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

/** Reports whether `0` of a field's dictionary means unknown, as an empty value does. */
function isZeroUnknown(schema: FieldSchema): boolean {
  return findDictionary(schema)?.['0']?.toLowerCase() === 'unknown';
}

/** Builds the conditions of the filters on fields; undefined if the dataset lacks a column, so that no row can pass. */
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
    const condition = inSet(`events.${column}`, `filter_${filter}_`, wanted, values, schema['x-column-type']);
    conditions.push(emptyPasses ? `(${condition} OR events.${column} IS NULL)` : condition);
  }
  return conditions;
}

export function requirement(event: StoredExport): string[] {
  // An empty id is not a user; earlier versions stored it.
  if (event.requires === 'user') return ["events.custom_user_id <> ''"];
  if (event.requires === 'device')
    return [`(${deviceColumns.map(({ column }) => `events.${column} IS NOT NULL`).join(' OR ')})`];
  return [];
}

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

/** Builds the condition that a row became available after a time, Unix ms. */
export function sinceConditions(afterMs: number | undefined, values: Record<string, BoundValue>): string[] {
  if (afterMs === undefined) return [];
  values['since'] = BigInt(afterMs) * 1000n;
  return ['events.available_at > make_timestamptz(CAST($since AS BIGINT))'];
}

/** Builds the condition on the local date, if the span includes rows of other dates. */
export function dayConditions({ localDates, timezone }: ExportSpec, values: Record<string, BoundValue>): string[] {
  if (localDates === undefined) return [];
  Object.assign(values, { timezone, dateFrom: localDates.from, dateTo: localDates.to });
  return [`${zoneDate('event_time')} BETWEEN CAST($dateFrom AS DATE) AND CAST($dateTo AS DATE)`];
}

/** Builds the condition on a parameter's value, of which a row has at most one. */
function paramCondition(
  { operator, values: wanted }: ParamFilter,
  name: string,
  values: Record<string, BoundValue>,
): string {
  if (operator === 'set') return "value <> ''";
  const prefix = `${name}Value`;
  if (operator === 'greater' || operator === 'less') {
    values[prefix] = wanted[0] ?? '';
    const sign = operator === 'greater' ? '>' : '<';
    return `coalesce(${typedSql('value', 'decimal')} ${sign} CAST($${prefix} AS DOUBLE), false)`;
  }
  if (operator !== 'contains') return inSet('value', prefix, wanted, values);
  return `(${wanted
    .map((text, index) => {
      values[`${prefix}${index}`] = text;
      return `contains(value, $${prefix}${index})`;
    })
    .join(' OR ')})`;
}

export function paramConditions({ params = [] }: ExportSpec, values: Record<string, BoundValue>): string[] {
  return params.map((param, index) => {
    const name = `param${index}`;
    values[name] = param.name;
    const found = `len(list_filter(map_extract(events.custom_event_params, $${name}), lambda value: ${paramCondition(param, name, values)}))`;
    const isAbsent = param.operator === 'not' || (param.operator === 'set' && param.values.includes('0'));
    return isAbsent ? `coalesce(${found}, 0) = 0` : `${found} > 0`;
  });
}

/**
 * The key by which ids are compared: 128 bits, without collisions in practice. The engine holds the whole set in
 * memory; texts take twice the bytes: two million did not fit into 256 MB.
 */
const keySql = (id: string): string => `md5_number(${id})`;

/** The relation of a segment's keys; its file is bound as `$segment`. */
const segmentSql = `(SELECT ${keySql('id')} AS key FROM read_parquet($segment, hive_partitioning = false))`;

/**
 * Builds the join that keeps the rows of a segment, each once, if any of its ids match. It follows the relation
 * `events` in FROM, and loses the order of rows. `conditions` of the query reduce the compared rows. One join serves
 * all device columns, since each join would hold the set once.
 */
export function segmentJoin(kind: SegmentKind, { columns }: Dataset, conditions: readonly string[]): string {
  if (kind === 'custom')
    return `SEMI JOIN ${segmentSql} AS segment ON ${keySql('events.custom_user_id')} = segment.key`;
  const present = new Set(columns.map(({ name }) => name));
  const ids = deviceColumnNames.filter((name) => present.has(name)).map((name) => `events.${name}`);
  const deviceIds = `list_filter(CAST([${ids.join(', ')}] AS VARCHAR[]), lambda id: id IS NOT NULL)`;
  return `SEMI JOIN (
    SELECT DISTINCT named.file_index, named.file_row_number FROM (
      SELECT events.file_index, events.file_row_number, unnest(list_transform(${deviceIds}, lambda id: ${keySql('id')})) AS key
      FROM ${filesSql} AS events WHERE ${['true', ...conditions].join(' AND ')}
    ) AS named SEMI JOIN ${segmentSql} AS segment ON named.key = segment.key
  ) AS chosen ON events.file_index = chosen.file_index AND events.file_row_number = chosen.file_row_number`;
}
