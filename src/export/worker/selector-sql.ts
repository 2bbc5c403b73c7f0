import type { Dataset, DatasetExport } from '../../datasets/dataset.ts';
import { getSelector, listTitleFields, type AppFact, type Selector } from '../../datasets/dictionaries.ts';
import { sqlName, sqlText } from '../../lake/sql/literals.ts';
import type { ExportApp, ExportSpec } from '../jobs/export-spec.ts';
import type { PlanTitles } from '../jobs/worker-messages.ts';
import type { BoundValue } from './export-query.ts';

/** The loaded titles that a selector shows. */
interface TitleLookUp {
  /** Joins that follow the relation `events` in FROM. They find at most one title for a row, and lose the order. */
  readonly joins: readonly string[];
  /** SQL of the titles that were found; the first that is not NULL counts. */
  readonly titles: readonly string[];
}

/** The relation of the loaded titles; their file binds as `$titles`. */
const titlesSql = 'read_parquet($titles, hive_partitioning = false)';

function fieldsWithTitles(selector: string, counts: PlanTitles['counts']): string[] {
  return listTitleFields(selector)
    .map(({ name }) => name)
    .filter((name) => (counts[name] ?? 0) > 0);
}

/** Says whether titles were loaded that a selector may show: only then is there anything to join. */
function hasTitles(selector: string, counts: PlanTitles['counts']): boolean {
  return fieldsWithTitles(selector, counts).length > 0;
}

/** Looks up the loaded titles of a selector, whose id is the SQL `id`. */
function lookUpTitles(selector: string, id: string, counts: PlanTitles['counts']): TitleLookUp {
  const named = fieldsWithTitles(selector, counts).map((name, index) => ({
    name,
    alias: `titles_${selector}_${index}`,
  }));
  return {
    joins: named.map(
      ({ name, alias }) =>
        `LEFT JOIN (SELECT id, title FROM ${titlesSql} WHERE field = ${sqlText(name)}) AS ${alias} ON ${alias}.id = CAST(${id} AS VARCHAR)`,
    ),
    titles: named.map(({ alias }) => `${alias}.title`),
  };
}

const appColumns: Readonly<Record<AppFact, string>> = {
  sdkKey: 'sdk_key',
  title: 'title',
  idAccount: 'id_account',
  idProject: 'id_project',
  platform: 'platform',
};

const betweenItems = sqlText("','");

/** The items of a list of texts with what an array literal has between them. */
function joinItems(list: string): string {
  return `array_to_string(${list}, ${betweenItems})`;
}

/**
 * An array literal of a list of texts: quotes, backslashes and line breaks escaped by a backslash (clients.md). Lists
 * without any of them, nearly all, are joined as they are. `joined` is the list so joined: a column, where it is not to
 * be made once for each mention. NULL where the list is.
 */
export function arrayLiteral(list: string, joined = joinItems(list)): string {
  const escaped = String.raw`replace(replace(replace(replace(item, '\', '\\'), '''', '\'''), chr(10), '\n'), chr(13), '\r')`;
  // A quote is looked for where no quotes of the literal's own are.
  const isSpecial = [
    String.raw`contains(${joined}, '\')`,
    `contains(${joined}, chr(10))`,
    `contains(${joined}, chr(13))`,
    `contains(array_to_string(${list}, ''), '''')`,
  ];
  return `CASE WHEN ${list} IS NULL THEN NULL WHEN len(${list}) = 0 THEN '[]'
    WHEN ${isSpecial.join(' OR ')} THEN '[' || array_to_string(list_transform(${list}, lambda item: '''' || ${escaped} || ''''), ',') || ']'
    ELSE '[''' || ${joined} || ''']' END`;
}

/** The title of a number by a dictionary; NULL where it has none. */
function dictionaryTitle(id: string, titles: Readonly<Record<string, string>>): string {
  const cases = Object.entries(titles).map(([known, title]) => `WHEN ${Number(known)} THEN ${sqlText(title)}`);
  return `CASE ${id} ${cases.join(' ')} END`;
}

/**
 * What a cell is: `text` as CSV has it, a list as an array literal; or `typed`, a value of the selector's type, for
 * formats that have types.
 */
export type Cells = 'text' | 'typed';

/** The columns of a result, in two steps: a list is joined in the first, and made a cell by the second. */
interface ResultColumns {
  /** What is read of the rows. */
  readonly read: readonly string[];
  /** What is written of that. */
  readonly written: readonly string[];
}

/** What a selector's expression is made for. */
interface SelectorPlan extends DatasetExport {
  readonly cells: Cells;
  readonly apps: readonly ExportApp[];
  readonly inline: boolean;
  /** The loaded titles of those selectors that show some; none by default. */
  readonly titles?: ReadonlyMap<string, TitleLookUp>;
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
    values[`app_${fact}_${index}`] = String(value);
    return [`WHEN ${app.idApp} THEN $app_${fact}_${index}`];
  });
  return cases.length === 0 ? 'NULL' : `CASE events.id_app ${cases.join(' ')} END`;
}

/** The date of a moment in the request's time zone, which binds as `$timezone`. */
export function zoneDate(column: string): string {
  return `CAST(timezone($timezone, events.${column}) AS DATE)`;
}

/** The date of a moment in UTC: by arithmetic, since a look into the zones costs as much as all other cells of a row. */
function utcDate(column: string): string {
  return `CAST(make_timestamp(epoch_us(events.${column})) AS DATE)`;
}

/** A list; an event without parameters has an empty one. */
function listExpression(list: string): string {
  return `coalesce(${list}, [])`;
}

/** A column of the table; empty where the dataset has none of that name. */
function columnSql({ columns }: Dataset, name: string): string {
  return columns.some((column) => column.name === name) ? `events.${name}` : 'NULL';
}

type ColumnSource = Extract<Selector['source'], { readonly column: string }>;

/** The first of some expressions that is not NULL. */
function firstOf(expressions: readonly string[]): string {
  const given = expressions.filter((expression) => expression !== 'NULL');
  return given.length > 1 ? `coalesce(${given.join(', ')})` : (given[0] ?? 'NULL');
}

/** The value of a column; a title by its dictionary first, then by the titles that were loaded. */
function columnExpression(
  name: string,
  { column, titleOf, dictionary }: ColumnSource,
  plan: SelectorPlan,
  timezone: string,
  values: Record<string, BoundValue>,
): string {
  const own = columnSql(plan.dataset, column);
  const loaded = plan.titles?.get(name)?.titles ?? [];
  if (titleOf === undefined || dictionary === undefined) return firstOf([...loaded, own]);
  const id = expressionOf(getSelector(titleOf), plan, timezone, values);
  return firstOf([id === 'NULL' ? id : dictionaryTitle(id, dictionary), ...loaded, own]);
}

function sourceExpression(
  { name, source }: Selector,
  plan: SelectorPlan,
  timezone: string,
  values: Record<string, BoundValue>,
): string {
  const { dataset } = plan;
  if ('column' in source) return columnExpression(name, source, plan, timezone, values);
  if ('seconds' in source) {
    const time = columnSql(dataset, source.seconds);
    return time === 'NULL' ? time : `epoch_us(${time}) // 1000000`;
  }
  if ('zoneDate' in source) {
    if (timezone === 'UTC') return utcDate(source.zoneDate);
    values['timezone'] = timezone;
    return zoneDate(source.zoneDate);
  }
  if ('mapKeys' in source) return listExpression(`map_keys(events.${source.mapKeys})`);
  if ('mapValues' in source) return listExpression(`map_values(events.${source.mapValues})`);
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
  const { event, dataset } = plan;
  const kind = 'kind' in event ? event.kind : undefined;
  // Rows, loaded ones and those that import methods make, have what their columns have.
  if (dataset.isLoadable) return 'constant' in selector.source ? 'NULL' : expressionOfAny();
  if (kinds !== undefined && kind !== undefined && !kinds.includes(kind)) return 'NULL';
  // A derived row is an event of any kind.
  return kinds === undefined || kind !== undefined
    ? expressionOfAny()
    : `CASE WHEN events.kind IN (${kinds.map(sqlText).join(', ')}) THEN ${expressionOfAny()} END`;

  function expressionOfAny(): string {
    return sourceExpression(selector, plan, timezone, values);
  }
}

const sqlTypes: Readonly<Record<Selector['type'], string>> = {
  string: 'VARCHAR',
  integer: 'BIGINT',
  number: 'DOUBLE',
  date: 'DATE',
  timestamp: 'BIGINT',
  array: 'VARCHAR[]',
};

/** The engine's type of a selector's value. Amounts, and one integer of 64 bits without a sign, are decimals. */
function typeOf({ type, columnType }: Selector): string {
  const isNumber = type === 'integer' || type === 'number';
  return isNumber && columnType?.startsWith('DECIMAL') === true ? columnType : sqlTypes[type];
}

function getSelectors({ selectors: names }: ExportSpec): Selector[] {
  return names.map(getSelector);
}

/** Whether a selector's cell is an array literal. */
function isLiteral({ source }: Selector, { cells }: SelectorPlan): boolean {
  return cells === 'text' && ('mapKeys' in source || 'mapValues' in source);
}

/** The columns of the result, as the selectors were asked for; adds the values they bind. */
function selectColumns(request: ExportSpec, plan: SelectorPlan, values: Record<string, BoundValue>): ResultColumns {
  const selected = getSelectors(request);
  const isLone = selected.length === 1;
  // DuckDB writes a lone empty value as an empty line, which CSV readers skip: "" keeps the row.
  const toCell = (expression: string): string =>
    isLone && plan.cells === 'text' ? `coalesce(CAST(${expression} AS VARCHAR), '')` : expression;
  const columns = selected.map((selector) => {
    const name = sqlName(selector.name);
    const expression = expressionOf(selector, plan, request.timezone, values);
    if (!isLiteral(selector, plan) || expression === 'NULL') {
      const value = plan.cells === 'typed' ? `CAST(${expression} AS ${typeOf(selector)})` : toCell(expression);
      return { read: [`${value} AS ${name}`], written: name };
    }
    const joined = sqlName(`${selector.name} joined`);
    return {
      read: [`${expression} AS ${name}`, `${joinItems(expression)} AS ${joined}`],
      written: `${toCell(arrayLiteral(name, joined))} AS ${name}`,
    };
  });
  return { read: columns.flatMap(({ read }) => read), written: columns.map(({ written }) => written) };
}

/** Says whether a request may show titles that were loaded. */
export function showsTitles({ selectors }: ExportSpec, titles: PlanTitles | undefined): boolean {
  return titles !== undefined && selectors.some((name) => hasTitles(name, titles.counts));
}

/** The loaded titles of the selectors that were asked for; those whose id the dataset has not show none. */
function findTitles(
  request: ExportSpec,
  plan: SelectorPlan,
  { counts }: PlanTitles,
  values: Record<string, BoundValue>,
): ReadonlyMap<string, TitleLookUp> {
  const found = new Map<string, TitleLookUp>();
  for (const { name, source } of getSelectors(request)) {
    if (!('column' in source) || source.titleOf === undefined || !hasTitles(name, counts)) continue;
    const id = expressionOf(getSelector(source.titleOf), plan, request.timezone, values);
    if (id !== 'NULL') found.set(name, lookUpTitles(name, id, counts));
  }
  return found;
}

/**
 * The columns of the result, and the joins that bring the loaded titles which they show; adds the values of both. The joins follow the others in FROM, and need a plan that is not `inline`.
 */
export function selectTitled(
  request: ExportSpec,
  plan: SelectorPlan,
  titles: PlanTitles | undefined,
  values: Record<string, BoundValue>,
): { readonly columns: ResultColumns; readonly titleJoins: readonly string[] } {
  const found = titles === undefined ? new Map<string, TitleLookUp>() : findTitles(request, plan, titles, values);
  const titleJoins = [...found.values()].flatMap(({ joins }) => joins);
  if (titles !== undefined && titleJoins.length > 0) values['titles'] = titles.file;
  return { columns: selectColumns(request, { ...plan, titles: found }, values), titleJoins };
}

/** SQL of a result: its columns of the rows that `from` (the rest of the statement) gives, in their order. */
export function selectSql({ read, written }: ResultColumns, from: string): string {
  return `SELECT ${written.join(', ')} FROM (SELECT ${read.join(', ')} ${from})`;
}

/** The columns of a result without rows. */
export function emptyColumns(request: ExportSpec): string[] {
  return getSelectors(request).map((selector) => `CAST(NULL AS ${typeOf(selector)}) AS ${sqlName(selector.name)}`);
}
