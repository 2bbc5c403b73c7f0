import type { Dataset, DatasetExport } from '../../datasets/dataset.ts';
import { getSelector, listTitleFields, type AppAttribute, type Selector } from '../../datasets/dictionaries.ts';
import { byteOrderMark } from '../../datasets/file-formats.ts';
import { sqlName, sqlText } from '../../lake/sql/literals.ts';
import type { ExportApp, ExportSpec } from '../jobs/export-spec.ts';
import type { PlanTitles } from '../jobs/worker-messages.ts';
import type { BoundValue, ExportStatement } from './export-query.ts';
import type { SheetColumn } from './formats/sheet-file.ts';
import { paramExpression, type ParamColumn } from './param-columns.ts';
import { spreadsheetCell } from './spreadsheet-cells.ts';

interface TitleLookup {
  /** Joins after the relation `events` in FROM; at most one title per row; they lose the order of rows. */
  readonly joins: readonly string[];
  /** SQL of the found titles; the first that is not NULL counts. */
  readonly titles: readonly string[];
}

/** The relation of the loaded titles; their file is bound as `$titles`. */
const titlesSql = 'read_parquet($titles, hive_partitioning = false)';

function fieldsWithTitles(selector: string, counts: PlanTitles['counts']): string[] {
  return listTitleFields(selector)
    .map(({ name }) => name)
    .filter((name) => (counts[name] ?? 0) > 0);
}

function hasTitles(selector: string, counts: PlanTitles['counts']): boolean {
  return fieldsWithTitles(selector, counts).length > 0;
}

/** Builds the lookup of a selector's titles by the SQL of its `id`. */
function lookUpTitles(selector: string, id: string, counts: PlanTitles['counts']): TitleLookup {
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

const appColumns: Readonly<Record<AppAttribute, string>> = {
  sdkKey: 'sdk_key',
  title: 'title',
  idAccount: 'id_account',
  idProject: 'id_project',
  platform: 'platform',
};

const betweenItems = sqlText("','");

/** Joins the items of a list of texts as inside an array literal. */
function joinItems(list: string): string {
  return `array_to_string(${list}, ${betweenItems})`;
}

/**
 * Builds the array literal of a list of texts: quotes, backslashes and line breaks are escaped by a backslash
 * (clients.md). Lists without them, nearly all, are joined. `joined`: a column with the joined list, so that it is
 * computed once. NULL if the list is.
 */
export function arrayLiteral(list: string, joined = joinItems(list)): string {
  const escaped = String.raw`replace(replace(replace(replace(item, '\', '\\'), '''', '\'''), chr(10), '\n'), chr(13), '\r')`;
  // Searches for a quote without those of the literal.
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

/** Builds the title of a number by a dictionary; NULL if it has none. */
function dictionaryTitle(id: string, titles: Readonly<Record<string, string>>): string {
  const cases = Object.entries(titles).map(([known, title]) => `WHEN ${Number(known)} THEN ${sqlText(title)}`);
  return `CASE ${id} ${cases.join(' ')} END`;
}

/** Form of cells. `text`: as in CSV, a list as an array literal. `typed`: a value of the selector's type. */
export type Cells = 'text' | 'typed';

/** The columns of a result in two steps: a list is joined in the first and becomes a cell in the second. */
interface ResultColumns {
  readonly read: readonly string[];
  readonly written: readonly string[];
}

/** The rows that expressions are built for. What they bind is added to `values`. */
interface SelectorPlan extends DatasetExport {
  readonly request: ExportSpec;
  readonly values: Record<string, BoundValue>;
  readonly cells: Cells;
  readonly apps: readonly ExportApp[];
  readonly inline: boolean;
  readonly lookUps?: ReadonlyMap<string, TitleLookup>;
  readonly params?: readonly ParamColumn[] | undefined;
}

/** Builds a property of the row's app, by comparison or from the joined relation. Texts are bound; ids are numbers. */
function appExpression(fact: AppAttribute, { apps, inline, values }: SelectorPlan): string {
  if (!inline) return `apps.${appColumns[fact]}`;
  const cases = apps.flatMap((app, index) => {
    const value = app[fact];
    if (value === undefined) return [];
    values[`app_${fact}_${index}`] = String(value);
    return [`WHEN ${app.idApp} THEN $app_${fact}_${index}`];
  });
  return cases.length === 0 ? 'NULL' : `CASE events.id_app ${cases.join(' ')} END`;
}

export function zoneDate(column: string): string {
  return `CAST(timezone($timezone, events.${column}) AS DATE)`;
}

/** Builds the date of a time in UTC by arithmetic: a zone lookup costs as much as all other cells of a row. */
function utcDate(column: string): string {
  return `CAST(make_timestamp(epoch_us(events.${column})) AS DATE)`;
}

const digits = (number: string): string => `lpad(CAST(${number} AS VARCHAR), 2, '0')`;

/**
 * Builds the text of a time in the request's zone with its offset, ISO 8601. Offsets of former times may have seconds.
 */
function zoneTime(column: string, { request, values }: SelectorPlan): string {
  const form = "'%Y-%m-%dT%H:%M:%S'";
  if (request.timezone === 'UTC') return `strftime(make_timestamp(epoch_us(events.${column})), ${form}) || '+00:00'`;
  values['timezone'] = request.timezone;
  const local = `timezone($timezone, events.${column})`;
  const offset = `((epoch_us(${local}) - epoch_us(events.${column})) // 1000000)`;
  const [hours, minutes, seconds] = [`abs(${offset}) // 3600`, `abs(${offset}) // 60 % 60`, `abs(${offset}) % 60`];
  const sign = `CASE WHEN ${offset} < 0 THEN '-' ELSE '+' END`;
  const rest = `CASE WHEN ${seconds} = 0 THEN '' ELSE ':' || ${digits(seconds)} END`;
  return `strftime(${local}, ${form}) || ${sign} || ${digits(hours)} || ':' || ${digits(minutes)} || ${rest}`;
}

/** Builds the statement that counts rows by date in a time zone. `from`: the FROM clause with the relation `events`. */
export function countByDate(from: string, timezone: string, values: ExportStatement['values']): ExportStatement {
  const isUtc = timezone === 'UTC';
  const date = isUtc ? utcDate('event_time') : zoneDate('event_time');
  return {
    sql: `SELECT CAST(${date} AS VARCHAR) AS date, count(*) AS rows ${from} GROUP BY 1 ORDER BY 1`,
    values: isUtc ? values : { ...values, timezone },
  };
}

/** An event without parameters has an empty list. */
function listExpression(list: string): string {
  return `coalesce(${list}, [])`;
}

/** Builds a column; NULL if the dataset does not have it. */
function columnSql({ columns }: Dataset, name: string): string {
  return columns.some((column) => column.name === name) ? `events.${name}` : 'NULL';
}

type ColumnSource = Extract<Selector['source'], { readonly column: string }>;

/** Builds the first of several expressions that is not NULL. */
function firstOf(expressions: readonly string[]): string {
  const given = expressions.filter((expression) => expression !== 'NULL');
  return given.length > 1 ? `coalesce(${given.join(', ')})` : (given[0] ?? 'NULL');
}

/** Builds the value of a column; a title by its dictionary first, then by the loaded titles. */
function columnExpression(name: string, { column, titleOf, dictionary }: ColumnSource, plan: SelectorPlan): string {
  const own = columnSql(plan.dataset, column);
  const loaded = plan.lookUps?.get(name)?.titles ?? [];
  if (titleOf === undefined || dictionary === undefined) return firstOf([...loaded, own]);
  const id = expressionOf(getSelector(titleOf), plan);
  return firstOf([id === 'NULL' ? id : dictionaryTitle(id, dictionary), ...loaded, own]);
}

function sourceExpression({ name, source }: Selector, plan: SelectorPlan): string {
  const { dataset, request, values } = plan;
  if ('column' in source) return columnExpression(name, source, plan);
  if ('seconds' in source) {
    const time = columnSql(dataset, source.seconds);
    return time === 'NULL' ? time : `epoch_us(${time}) // 1000000`;
  }
  if ('zoneDate' in source) {
    if (request.timezone === 'UTC') return utcDate(source.zoneDate);
    values['timezone'] = request.timezone;
    return zoneDate(source.zoneDate);
  }
  if ('zoneTime' in source) return zoneTime(source.zoneTime, plan);
  if ('mapKeys' in source) return listExpression(`map_keys(events.${source.mapKeys})`);
  if ('mapValues' in source) return listExpression(`map_values(events.${source.mapValues})`);
  if ('constant' in source) return sqlText(source.constant);
  if ('derived' in source) return 'derive' in plan.event ? `derived.${source.derived}` : 'NULL';
  return appExpression(source.app, plan);
}

/** Builds the expression of a selector; NULL for rows of a kind without it. */
function expressionOf(selector: Selector, plan: SelectorPlan): string {
  const { kinds } = selector;
  const { event, dataset } = plan;
  const kind = 'kind' in event ? event.kind : undefined;
  // Loaded rows have what their columns have.
  if (dataset.isLoadable) return 'constant' in selector.source ? 'NULL' : sourceExpression(selector, plan);
  if (kinds !== undefined && kind !== undefined && !kinds.includes(kind)) return 'NULL';
  // A derived row is an event of any kind.
  const expression = sourceExpression(selector, plan);
  return kinds === undefined || kind !== undefined
    ? expression
    : `CASE WHEN events.kind IN (${kinds.map(sqlText).join(', ')}) THEN ${expression} END`;
}

const sqlTypes: Readonly<Record<Selector['type'], string>> = {
  string: 'VARCHAR',
  integer: 'BIGINT',
  number: 'DOUBLE',
  date: 'DATE',
  timestamp: 'BIGINT',
  array: 'VARCHAR[]',
};

/** Returns the engine's type of a selector. Amounts and an unsigned 64-bit integer are decimals. */
function typeOf({ type, columnType }: Selector): string {
  const isNumber = type === 'integer' || type === 'number';
  return isNumber && columnType?.startsWith('DECIMAL') === true ? columnType : sqlTypes[type];
}

function getSelectors({ selectors: names }: ExportSpec): Selector[] {
  return names.map(getSelector);
}

function isLiteral({ source }: Selector, { cells }: SelectorPlan): boolean {
  return cells === 'text' && ('mapKeys' in source || 'mapValues' in source);
}

function toSheetColumn({ type, source }: Selector): SheetColumn {
  if ('zoneTime' in source) return 'time';
  if (type === 'date') return 'date';
  return ['integer', 'number', 'timestamp'].includes(type) ? 'number' : 'text';
}

/** Lists what the columns of a result are in a workbook. */
export function listSheetColumns(request: ExportSpec, params: readonly ParamColumn[]): SheetColumn[] {
  return [
    ...(request.erasures === true
      ? request.selectors.map((name) => (name === 'idApp' ? 'number' : 'text'))
      : getSelectors(request).map(toSheetColumn)),
    ...params.map(({ type }) => (['integer', 'long', 'decimal'].includes(type) ? 'number' : 'text')),
  ];
}

/** Returns what a spreadsheet makes of a selector's value. */
function spreadsheetKind({ type, columnType = 'VARCHAR' }: Selector): 'text' | 'decimal' | 'other' {
  if (columnType === 'DOUBLE' || /^DECIMAL\(\d+,[1-9]/.test(columnType)) return 'decimal';
  return columnType === 'VARCHAR' && type === 'string' ? 'text' : 'other';
}

/** Names a column as in the header. Each part begins with the header, and so with the mark of a dialect. */
function headerName(name: string, index: number, { dialect }: ExportSpec): string {
  return sqlName(index === 0 && dialect !== undefined ? `${byteOrderMark}${name}` : name);
}

/** A column of a result: what the first step reads, and its cell in the second. */
interface NamedColumn {
  readonly name: string;
  readonly read: readonly string[];
  readonly cell: string;
}

function selectorColumn(selector: Selector, plan: SelectorPlan, isLone: boolean): NamedColumn {
  const { cells, request } = plan;
  // DuckDB writes a lone empty value as an empty line, which CSV readers skip: "" keeps the row.
  const toCell = (value: string): string =>
    isLone && cells === 'text' ? `coalesce(CAST(${value} AS VARCHAR), '')` : value;
  const { name } = selector;
  const column = sqlName(name);
  const expression = expressionOf(selector, plan);
  if (isLiteral(selector, plan) && expression !== 'NULL') {
    const joined = sqlName(`${name} joined`);
    const read = [`${expression} AS ${column}`, `${joinItems(expression)} AS ${joined}`];
    return { name, read, cell: toCell(arrayLiteral(column, joined)) };
  }
  if (cells === 'typed')
    return { name, read: [`CAST(${expression} AS ${typeOf(selector)}) AS ${column}`], cell: column };
  const { dialect } = request;
  const own =
    dialect === undefined || expression === 'NULL'
      ? expression
      : spreadsheetCell(expression, spreadsheetKind(selector), dialect);
  return { name, read: [`${toCell(own)} AS ${column}`], cell: column };
}

/** Builds the columns of the result, and adds their values. */
function selectColumns(plan: SelectorPlan): ResultColumns {
  const selected = getSelectors(plan.request);
  const params = plan.params ?? [];
  const isLone = selected.length + params.length === 1;
  const columns: readonly NamedColumn[] = [
    ...selected.map((selector) => selectorColumn(selector, plan, isLone)),
    ...params.map((param, index) => {
      const column = sqlName(`param ${index}`);
      return { name: param.name, read: [`${paramExpression(param, index, plan)} AS ${column}`], cell: column };
    }),
  ];
  return {
    read: columns.flatMap(({ read }) => read),
    written: columns.map(({ name, cell }, index) => `${cell} AS ${headerName(name, index, plan.request)}`),
  };
}

export function showsTitles({ selectors }: ExportSpec, titles: PlanTitles | undefined): boolean {
  return titles !== undefined && selectors.some((name) => hasTitles(name, titles.counts));
}

/** Finds the loaded titles of a request's selectors; none if the dataset lacks their id. */
function findTitles(plan: SelectorPlan, { counts }: PlanTitles): ReadonlyMap<string, TitleLookup> {
  const found = new Map<string, TitleLookup>();
  for (const { name, source } of getSelectors(plan.request)) {
    if (!('column' in source) || source.titleOf === undefined || !hasTitles(name, counts)) continue;
    const id = expressionOf(getSelector(source.titleOf), plan);
    if (id !== 'NULL') found.set(name, lookUpTitles(name, id, counts));
  }
  return found;
}

/**
 * Builds the columns of the result, and the joins of their titles, which follow the other joins in FROM. Adds their
 * parameters to `plan.values`. Titles need a plan that is not `inline`.
 */
export function selectTitled(
  plan: SelectorPlan,
  titles: PlanTitles | undefined,
): { readonly columns: ResultColumns; readonly titleJoins: readonly string[] } {
  const lookUps = titles === undefined ? new Map<string, TitleLookup>() : findTitles(plan, titles);
  const titleJoins = [...lookUps.values()].flatMap(({ joins }) => joins);
  if (titles !== undefined && titleJoins.length > 0) plan.values['titles'] = titles.absolutePath;
  return { columns: selectColumns({ ...plan, lookUps }), titleJoins };
}

export function selectSql({ read, written }: ResultColumns, from: string): string {
  return `SELECT ${written.join(', ')} FROM (SELECT ${read.join(', ')} ${from})`;
}

export function emptyColumns(request: ExportSpec, params: readonly ParamColumn[]): string[] {
  const columns = [
    ...getSelectors(request).map((selector) => ({ name: selector.name, type: typeOf(selector) })),
    ...params.map(({ name }) => ({ name, type: 'VARCHAR' })),
  ];
  return columns.map(({ name, type }, index) => `CAST(NULL AS ${type}) AS ${headerName(name, index, request)}`);
}
