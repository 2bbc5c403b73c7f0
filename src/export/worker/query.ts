import { eventFields } from '../../datasets/event-fields.ts';
import { events } from '../../datasets/dataset.ts';
import { selectors, type AppFact, type Selector } from '../../datasets/dictionaries.ts';
import type { ExportEvent } from '../../datasets/pipeline-file.ts';
import type { FileFilter, TimeRange } from '../../lake/files/prune.ts';
import { sqlName, sqlText } from '../../lake/sql/literals.ts';
import { emptyValuesMatch, type ExportApp, type ExportSpec, type SecondsSpan } from '../jobs/export-spec.ts';

/** A value bound to a parameter of the query; lists bind as lists. */
export type BoundValue = string | bigint | readonly string[] | readonly bigint[];

/**
 * A query over the data files, which bind as `$files`, and the relation `apps` (the apps the caller may read). The text
 * is made of our own words only; whatever came with the request is in the values. Rows come in the order of the files.
 */
export interface ExportQuery {
  readonly select: string;
  readonly count: string;
  /** Bound by both statements. */
  readonly filterValues: Readonly<Record<string, BoundValue>>;
  /** Bound by `select` besides. */
  readonly selectValues: Readonly<Record<string, BoundValue>>;
  /**
   * Sets are compared value by value, which keeps the order of the rows. Otherwise they are looked up by a join, which
   * loses it, and the rows are sorted: better for sets too large to be walked through for every row.
   */
  readonly inline: boolean;
}

/** The largest set that is compared value by value. */
const inlineSetSize = 64;

const appColumns: Readonly<Record<AppFact, string>> = {
  sdkKey: 'sdk_key',
  title: 'title',
  idAccount: 'id_account',
  idProject: 'id_project',
  platform: 'platform',
};

/**
 * An array literal of a list of texts: quotes, backslashes and line breaks escaped by a backslash (clients.md). Lists
 * without any of them, nearly all, are joined as they are, which takes half the time.
 */
export function arrayLiteral(list: string): string {
  const escaped = String.raw`replace(replace(replace(replace(item, '\', '\\'), '''', '\'''), chr(10), '\n'), chr(13), '\r')`;
  const special = String.raw`regexp_matches(array_to_string(${list}, ''), '[\\''\n\r]')`;
  return `CASE WHEN coalesce(len(${list}), 0) = 0 THEN '[]'
    WHEN ${special} THEN '[' || array_to_string(list_transform(${list}, lambda item: '''' || ${escaped} || ''''), ',') || ']'
    ELSE '[''' || array_to_string(${list}, ''',''') || ''']' END`;
}

function titleOf(column: string, titles: Readonly<Record<string, string>>): string {
  const cases = Object.entries(titles).map(([id, title]) => `WHEN ${Number(id)} THEN ${sqlText(title)}`);
  return `CASE events.${column} ${cases.join(' ')} END`;
}

/** What the query is built for. */
interface Plan {
  readonly event: ExportEvent;
  readonly apps: readonly ExportApp[];
  readonly inline: boolean;
}

/**
 * A fact of the row's app: by comparison, or from the joined relation. App ids are our registry's own numbers; texts
 * are bound.
 */
function appExpression(fact: AppFact, { apps, inline }: Plan, values: Record<string, BoundValue>): string {
  if (!inline) return `apps.${appColumns[fact]}`;
  const cases = apps.flatMap((app, index) => {
    const value = app[fact];
    if (value === undefined) return [];
    values[`${fact}${index}`] = String(value);
    return [`WHEN ${app.idApp} THEN $${fact}${index}`];
  });
  return cases.length === 0 ? 'NULL' : `CASE events.id_app ${cases.join(' ')} END`;
}

/** The date of a moment in the request's time zone, which binds as `$timezone`. */
function zoneDate(column: string): string {
  return `CAST(timezone($timezone, events.${column}) AS DATE)`;
}

function sourceExpression(
  { source }: Selector,
  plan: Plan,
  timezone: string,
  values: Record<string, BoundValue>,
): string {
  if (source === null) return 'NULL';
  if ('column' in source)
    return source.titles === undefined ? `events.${source.column}` : titleOf(source.column, source.titles);
  if ('seconds' in source) return `epoch_us(events.${source.seconds}) // 1000000`;
  if ('zoneDate' in source) {
    values['timezone'] = timezone;
    return zoneDate(source.zoneDate);
  }
  if ('mapKeys' in source) return arrayLiteral(`map_keys(events.${source.mapKeys})`);
  if ('mapValues' in source) return arrayLiteral(`map_values(events.${source.mapValues})`);
  if ('constant' in source) return sqlText(source.constant);
  return appExpression(source.app, plan, values);
}

/** The columns of the result, as the selectors were asked for; adds the values they bind. */
function selectColumns(request: ExportSpec, plan: Plan, values: Record<string, BoundValue>): string[] {
  return request.selectors.map((name) => {
    const selector = selectors.get(name);
    if (selector === undefined) throw new Error(`no selector ${name}`);
    const has = selector.kinds === undefined || selector.kinds.includes(plan.event.kind);
    const expression = has ? sourceExpression(selector, plan, request.timezone, values) : 'NULL';
    // DuckDB writes a lone empty value as an empty line, which CSV readers skip: "" keeps the row.
    return `${request.selectors.length === 1 ? `coalesce(CAST(${expression} AS VARCHAR), '')` : expression} AS ${sqlName(name)}`;
  });
}

/**
 * A condition that a column's value is in a set; each value a parameter of its own, so that files are skipped by it.
 */
function inSet(
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

const deviceColumns = eventFields
  .filter((field) => field.schema['x-device-id'] === true)
  .map((field) => field.schema['x-column']);

function requirement(event: ExportEvent): string[] {
  // An empty id is no user; earlier versions stored it as it came.
  if (event.requires === 'user') return ["events.custom_user_id <> ''"];
  if (event.requires === 'device')
    return [`(${deviceColumns.map((column) => `events.${column} IS NOT NULL`).join(' OR ')})`];
  return [];
}

/**
 * Whether no row of the `events` table can be in the result: the event reads another dataset, a filter asks for a value
 * that no imported event has, no app is left, or the time span is empty.
 */
export function isEmptyResult(request: ExportSpec, apps: readonly ExportApp[]): boolean {
  const { fromSeconds = -Infinity, beforeSeconds = Infinity } = request.eventTime;
  return (
    !events.exports.has(request.event) ||
    apps.length === 0 ||
    !emptyValuesMatch(request.unknowable) ||
    fromSeconds >= beforeSeconds
  );
}

function toTimeRange({ fromSeconds, beforeSeconds }: SecondsSpan): TimeRange {
  return {
    ...(fromSeconds === undefined ? {} : { fromMs: fromSeconds * 1000 }),
    ...(beforeSeconds === undefined ? {} : { toMs: beforeSeconds * 1000 }),
  };
}

/** What of a request the log's statistics can be compared with, to leave files unopened. */
export function fileFilter(request: ExportSpec, apps: readonly ExportApp[]): FileFilter {
  const event = events.exports.get(request.event);
  return {
    idApps: apps.map((app) => app.idApp),
    ...(event === undefined ? {} : { kinds: [event.kind] }),
    eventTime: toTimeRange(request.eventTime),
    availableAt: toTimeRange(request.availableAt),
  };
}

/** Adds the bounds of a time column to the conditions. */
function spanConditions(
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
function dayConditions({ localDates, timezone }: ExportSpec, values: Record<string, BoundValue>): string[] {
  if (localDates === undefined) return [];
  Object.assign(values, { timezone, dateFrom: localDates.from, dateTo: localDates.to });
  return [`${zoneDate('event_time')} BETWEEN CAST($dateFrom AS DATE) AND CAST($dateTo AS DATE)`];
}

/**
 * Builds the query of a request whose event reads the `events` table; throws on any other, whose result is empty.
 * `lean`: without the sort, whatever the size of the sets: slower, and needs the memory of a few thousand rows instead
 * of 122,880.
 */
export function buildQuery(request: ExportSpec, apps: readonly ExportApp[], lean = false): ExportQuery {
  const event = events.exports.get(request.event);
  if (event === undefined) throw new Error(`${request.event} reads no table`);
  const inline = lean || (apps.length <= inlineSetSize && (request.eventName?.length ?? 0) <= inlineSetSize);
  const filterValues: Record<string, BoundValue> = { kind: event.kind };
  const conditions = [
    'events.kind = $kind',
    ...requirement(event),
    ...spanConditions('event_time', 'event', request.eventTime, filterValues),
    ...spanConditions('available_at', 'available', request.availableAt, filterValues),
    ...dayConditions(request, filterValues),
    ...(inline ? [`events.id_app IN (${apps.map((app) => app.idApp).join(', ')})`] : []),
  ];
  if (request.eventName !== undefined) {
    const names = inSet('events.custom_event_name', 'name', request.eventName);
    conditions.push(request.eventNameInvert ? `NOT (${names.condition})` : names.condition);
    Object.assign(filterValues, names.values);
  }
  const selectValues: Record<string, BoundValue> = {};
  const columns = selectColumns(request, { event, apps, inline }, selectValues);
  const join = inline ? '' : 'JOIN apps ON events.id_app = apps.id_app';
  const from = `FROM read_parquet($files, union_by_name = true, hive_partitioning = false) AS events ${join} WHERE ${conditions.join(' AND ')}`;
  const order = inline ? '' : 'ORDER BY events.file_index, events.file_row_number';
  return {
    select: `SELECT ${columns.join(', ')} ${from} ${order}`,
    count: `SELECT count(*) AS rows ${from}`,
    filterValues,
    selectValues,
    inline,
  };
}
