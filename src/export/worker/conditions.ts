import { eventFields } from '../../datasets/event-fields.ts';
import type { KindExport, Subject } from '../../datasets/pipeline-file.ts';
import type { ExportSpec, SecondsSpan } from '../jobs/export-spec.ts';
import type { BoundValue } from './export-query.ts';
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

/** SQL for the text that identifies the subject of an event within its app; NULL where it has none. */
export function subjectSql(subject: Subject): string {
  if (subject === 'user') return "nullif(events.custom_user_id, '')";
  const cases = deviceColumns.map(
    ({ name, column }) => `WHEN events.${column} <> '' THEN '${name}:' || events.${column}`,
  );
  return `CASE ${cases.join(' ')} END`;
}

/** The conditions on who an event of a kind must name. */
export function requirement(event: KindExport): string[] {
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
