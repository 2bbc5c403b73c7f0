import { selectors, type AppFact, type Selector } from '../../datasets/dictionaries.ts';
import { eventColumns } from '../../datasets/event-fields.ts';
import type { ExportEvent } from '../../datasets/pipeline-file.ts';
import { sqlName, sqlText } from '../../lake/sql/literals.ts';
import type { ExportApp, ExportSpec } from '../jobs/export-spec.ts';
import type { BoundValue } from './export-query.ts';

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

/**
 * What a cell is: `text` as CSV has it, a list as an array literal; or `typed`, a value of the selector's type, for
 * formats that have types.
 */
export type Cells = 'text' | 'typed';

/** What a selector's expression is made for. */
export interface SelectorPlan {
  readonly cells: Cells;
  readonly event: ExportEvent;
  readonly apps: readonly ExportApp[];
  readonly inline: boolean;
}

/**
 * A fact of the row's app: by comparison, or from the joined relation. App ids are our registry's own numbers; texts
 * are bound.
 */
function appExpression(fact: AppFact, { apps, inline }: SelectorPlan, values: Record<string, BoundValue>): string {
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
export function zoneDate(column: string): string {
  return `CAST(timezone($timezone, events.${column}) AS DATE)`;
}

/** A list as a cell; an event without parameters has an empty one. */
function listExpression(list: string, cells: Cells): string {
  return cells === 'text' ? arrayLiteral(list) : `coalesce(${list}, [])`;
}

function sourceExpression(
  { source }: Selector,
  plan: SelectorPlan,
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
  if ('mapKeys' in source) return listExpression(`map_keys(events.${source.mapKeys})`, plan.cells);
  if ('mapValues' in source) return listExpression(`map_values(events.${source.mapValues})`, plan.cells);
  if ('constant' in source) return sqlText(source.constant);
  if ('derived' in source) return 'derive' in plan.event ? `derived.${source.derived}` : 'NULL';
  return appExpression(source.app, plan, values);
}

/** The expression of a selector for the rows of the plan's event; empty for rows of a kind that has no such value. */
function expressionOf(
  selector: Selector,
  plan: SelectorPlan,
  timezone: string,
  values: Record<string, BoundValue>,
): string {
  const { kinds } = selector;
  const { event } = plan;
  if (kinds !== undefined && 'kind' in event && !kinds.includes(event.kind)) return 'NULL';
  const expression = sourceExpression(selector, plan, timezone, values);
  // A derived row is an event of any kind.
  return kinds === undefined || 'kind' in event
    ? expression
    : `CASE WHEN events.kind IN (${kinds.map(sqlText).join(', ')}) THEN ${expression} END`;
}

const columnTypes: ReadonlyMap<string, string> = new Map(eventColumns.map(({ name, type }) => [name, type]));
const sqlTypes: Readonly<Record<Selector['type'], string>> = {
  string: 'VARCHAR',
  integer: 'BIGINT',
  number: 'DOUBLE',
  date: 'DATE',
  timestamp: 'BIGINT',
  array: 'VARCHAR[]',
};

/** The engine's type of a selector's value. One integer of 64 bits has no sign, and is a decimal in the lake. */
function typeOf({ type, source }: Selector): string {
  const column = source !== null && 'column' in source ? columnTypes.get(source.column) : undefined;
  return type === 'integer' && column?.startsWith('DECIMAL') === true ? column : sqlTypes[type];
}

function getSelectors({ selectors: names }: ExportSpec): Selector[] {
  return names.map((name) => {
    const selector = selectors.get(name);
    if (selector === undefined) throw new Error(`no selector ${name}`);
    return selector;
  });
}

/** The columns of the result, as the selectors were asked for; adds the values they bind. */
export function selectColumns(request: ExportSpec, plan: SelectorPlan, values: Record<string, BoundValue>): string[] {
  return getSelectors(request).map((selector, _index, { length }) => {
    const name = sqlName(selector.name);
    const expression = expressionOf(selector, plan, request.timezone, values);
    if (plan.cells === 'typed') return `CAST(${expression} AS ${typeOf(selector)}) AS ${name}`;
    // DuckDB writes a lone empty value as an empty line, which CSV readers skip: "" keeps the row.
    return `${length === 1 ? `coalesce(CAST(${expression} AS VARCHAR), '')` : expression} AS ${name}`;
  });
}

/** The columns of a result without rows. */
export function emptyColumns(request: ExportSpec): string[] {
  return getSelectors(request).map((selector) => `CAST(NULL AS ${typeOf(selector)}) AS ${sqlName(selector.name)}`);
}
