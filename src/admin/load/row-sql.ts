import type { Dataset } from '../../datasets/dataset.ts';
import { sqlName, sqlText, utcDateSql } from '../../lake/sql/literals.ts';
import { type CountrySql, planRowColumns, type FileCell, type RowColumn, type RowColumns } from './row-columns.ts';
import type { OwnField, RowCheck } from './file-fields.ts';

/**
 * Builds the SQL that turns the cells of a file into typed, checked rows with an app and an identity. Pure. Names as in
 * row-columns.ts, and `s_COLUMN` for stored values. Each step is a projection without repetitions: the engine evaluates
 * each occurrence of an expression in a CASE.
 */

export interface Relation {
  readonly from: string;
  readonly cells: readonly FileCell[];
  /** Columns to pass through. */
  readonly through: readonly string[];
  readonly checks: readonly RowCheck[];
}

interface RowPlan extends Relation {
  readonly dataset: Dataset;
  /** The app of rows that name none. */
  readonly idApp: number | undefined;
  /** A table with `id_app` and `sdk_key` of the registered apps. */
  readonly appsTable: string;
  /** Raises an error for a bad row. */
  readonly isStrict: boolean;
}

/** Values of all rows of a load. Times are Unix milliseconds. */
export interface LoadStamp {
  readonly loadId: string;
  readonly receivedAtMs: number;
  readonly availableAtMs: number;
}

export interface RowsSql {
  /** All rows: stored values, `fault` (the index of the first failed check, or NULL), and `through`. */
  readonly checkedSql: string;
  readonly checks: readonly RowCheck[];
  /**
   * SELECT list of the written columns. Columns that the file lacks are omitted: readers know them from the table's
   * empty file, and writing a hundred empty columns takes longer than writing the rows.
   */
  toColumns(stamp: LoadStamp): string;
}

const identityDigits = 32;

/** SQL of an identity from all non-empty columns, by name: a column that is added later does not change it. */
function identitySql(rowColumns: readonly RowColumn[]): string {
  const texts = rowColumns
    .toSorted((a, b) => (a.column < b.column ? -1 : 1))
    .map(({ column, text }) => `coalesce(${sqlText(`${column}=`)} || strlen(${text}) || ':' || ${text}, '')`);
  return `left(sha256(${texts.join(' || ')}), ${identityDigits})`;
}

function findCell(cells: readonly FileCell[], wanted: OwnField): string | undefined {
  const index = cells.findIndex(({ use }) => 'own' in use && use.own === wanted);
  return index === -1 ? undefined : `t${index}`;
}

function requiredChecks(cells: readonly FileCell[], idApp: number | undefined): RowCheck[] {
  const isEmpty = (...fields: OwnField[]): string =>
    fields
      .flatMap((field) => findCell(cells, field) ?? [])
      .map((cell) => `${cell} IS NULL`)
      .join(' AND ') || 'true';
  return [
    { reason: 'missing', field: 'tsEvent', sql: isEmpty('tsEvent') },
    ...(idApp === undefined
      ? [{ reason: 'missing' as const, field: 'idApp', sql: `(${isEmpty('idApp', 'SDKKey')})` }]
      : []),
    ...cells.flatMap(({ rule }, index) =>
      rule?.required === true ? [{ reason: 'missing' as const, field: rule.field, sql: `t${index} IS NULL` }] : [],
    ),
  ];
}

/** SQL of the app of a row: its idApp, else that of its SDKKey, else the given one. */
function appSql(own: RowColumns['own'], idApp: number | undefined): string {
  const idAppSql = idApp === undefined ? 'CAST(NULL AS BIGINT)' : String(idApp);
  const key =
    own.SDKKey === undefined ? idAppSql : `CASE WHEN ${own.SDKKey} IS NULL THEN ${idAppSql} ELSE keyed.id_app END`;
  return own.idApp === undefined ? key : `coalesce(${own.idApp}, ${key})`;
}

/** The app must be registered, and both fields must name the same one. */
function appChecks({ idApp, SDKKey }: RowColumns['own']): RowCheck[] {
  const isByKey = idApp === undefined && SDKKey !== undefined;
  return [
    ...(idApp === undefined || SDKKey === undefined
      ? []
      : [{ reason: 'conflict' as const, field: 'SDKKey', sql: `${idApp} <> key_app` }]),
    { reason: 'unknown_app', field: isByKey ? 'SDKKey' : 'idApp', sql: 'is_registered IS NOT TRUE' },
  ];
}

/** SQL that joins a row with the app of its key and its country; `selected` are their columns. */
function joinSql(
  { SDKKey }: RowColumns['own'],
  appsTable: string,
  country: CountrySql | undefined,
): { readonly joins: string; readonly selected: readonly string[] } {
  const keyed = {
    join: `LEFT JOIN ${appsTable} AS keyed ON keyed.sdk_key = ${SDKKey}`,
    selected: 'keyed.id_app AS key_app',
  };
  const all = [...(SDKKey === undefined ? [] : [keyed]), ...(country === undefined ? [] : [country])];
  return { joins: all.map(({ join }) => join).join(' '), selected: all.map((one) => one.selected) };
}

const more = (some: readonly string[]): string => some.map((one) => `, ${one}`).join('');

export function buildRowsSql(plan: RowPlan): RowsSql {
  const { dataset, cells, from, through, idApp, appsTable, isStrict } = plan;
  const { casts, values, columns: fieldParts, checks: fieldChecks, country, own } = planRowColumns(dataset, cells);
  const rowChecks: RowCheck[] = [...plan.checks, ...requiredChecks(cells, idApp), ...fieldChecks, ...appChecks(own)];
  const time = own.tsEvent ?? 'CAST(NULL AS BIGINT)';
  const rowColumns: RowColumn[] = [
    { column: 'event_time', stored: `make_timestamptz(${time} * 1000000)`, text: `CAST(${time} AS VARCHAR)` },
    { column: 'id_app', stored: 'app', text: 'CAST(app AS VARCHAR)' },
    ...fieldParts,
  ];
  const identity = identitySql(rowColumns);
  const eventId =
    own.eventId === undefined
      ? identity
      : `CASE WHEN ${own.eventId} IS NOT NULL THEN ${own.eventId} ELSE ${identity} END`;
  const filled = country?.columns ?? [];
  const stored = [
    { column: 'event_id', stored: eventId },
    ...rowColumns.filter(({ column }) => !filled.some((one) => one.column === column)),
    ...filled,
  ];

  const passedThrough = through.map((name) => `${name}, `).join('');
  const cellList = cells.map(({ sql }, index) => `${sql} AS t${index}`).join(', ');
  const faultCases = rowChecks
    .map(({ sql, isDetail }, index) => (isStrict && isDetail ? '' : `WHEN ${sql} THEN ${index}`))
    .join('\n      ');
  // Stored values of a bad row may be errors, which only the strict query may raise.
  const ifGood = (sql: string): string => (isStrict ? sql : `CASE WHEN fault IS NULL THEN ${sql} END`);
  const { joins, selected } = joinSql(own, appsTable, country);
  return {
    checks: rowChecks,
    checkedSql: `SELECT ${passedThrough}fault, ${stored.map((part) => `${ifGood(part.stored)} AS ${sqlName(`s_${part.column}`)}`).join(', ')}
  FROM (SELECT *, CASE ${faultCases} END AS fault
  FROM (SELECT *, app IN (SELECT id_app FROM ${appsTable}) AS is_registered
  FROM (SELECT valued.*, ${appSql(own, idApp)} AS app${more(selected)}
  FROM (SELECT *${more(values)}
  FROM (SELECT *${more(casts)}
  FROM (SELECT ${passedThrough}${cellList === '' ? 'NULL AS none' : cellList} FROM ${from}) AS cells) AS cast_cells) AS valued ${joins}) AS named) AS known) AS judged`,
    toColumns({ loadId, receivedAtMs, availableAtMs }) {
      const addedColumns: Readonly<Record<string, string>> = {
        // Not a WHERE condition: the engine would push it down to the file and evaluate it twice.
        ...(isStrict ? { event_id: `CASE WHEN fault IS NULL THEN s_event_id ELSE error('a bad row') END` } : {}),
        date: utcDateSql('s_event_time'),
        received_at: `make_timestamptz(${receivedAtMs} * 1000)`,
        available_at: `make_timestamptz(${availableAtMs} * 1000)`,
        load_id: sqlText(loadId),
      };
      const known = new Set(stored.map(({ column }) => column));
      return dataset.columns
        .filter(({ name }) => known.has(name) || addedColumns[name] !== undefined)
        .map(({ name, type }) => {
          const value = addedColumns[name] ?? sqlName(`s_${name}`);
          return `CAST(${value} AS ${type}) AS ${sqlName(name)}`;
        })
        .join(', ');
    },
  };
}
