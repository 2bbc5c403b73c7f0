import type { Dataset } from '../../datasets/dataset.ts';
import { sqlName, sqlText, utcDateSql } from '../../lake/sql/literals.ts';
import { type CountrySql, planParts, type FileCell, type Part, type RowParts } from './row-parts.ts';
import type { OwnField, Check } from './file-fields.ts';

/**
 * The SQL that makes rows of a table out of the cells of a file: typed by the schema, checked, each of its app and with
 * its identity. Pure. Beside the names of row-parts.ts: `s_COLUMN` is what is stored.
 *
 * A projection for each step, none of which repeats what another has made: the engine works out a part of a CASE as
 * often as it stands there.
 */

interface RowPlan {
  readonly dataset: Dataset;
  readonly cells: readonly FileCell[];
  /** The relation of the file's rows, for FROM. */
  readonly from: string;
  /** Columns of it that go through as they are. */
  readonly through: readonly string[];
  /** What a row must be at all, on those columns; comes before all other checks. */
  readonly firstChecks: readonly Check[];
  /** The app of rows that name none. */
  readonly idApp: number | undefined;
  /** The table of the registered apps: `id_app`, `sdk_key`. */
  readonly appsTable: string;
  /** A bad row ends the query with an error, whichever check it fails. */
  readonly isStrict: boolean;
}

/** What all rows of a load have. Times are Unix milliseconds. */
export interface LoadStamp {
  readonly loadId: string;
  readonly receivedAtMs: number;
  readonly availableAtMs: number;
}

export interface RowsSql {
  /** Every row: what is stored, `fault` (the index of the first check that it fails, or NULL), and `through`. */
  readonly checkedSql: string;
  readonly checks: readonly Check[];
  /**
   * The list of the columns that are written, out of `checkedSql`: what every row has, and what the file brings. The
   * others readers know from the table's empty file; to write a hundred columns without a value takes longer than to
   * write the rows.
   */
  toColumns(stamp: LoadStamp): string;
}

/** Digits of an identity that is made: 128 bits. */
const identityDigits = 32;

/** An identity out of all columns that have a value, by name, so that a column that is added later changes none. */
function identitySql(parts: readonly Part[]): string {
  const texts = parts
    .toSorted((a, b) => (a.column < b.column ? -1 : 1))
    .map(({ column, text }) => `coalesce(${sqlText(`${column}=`)} || strlen(${text}) || ':' || ${text}, '')`);
  return `left(sha256(${texts.join(' || ')}), ${identityDigits})`;
}

/** The cell of a field that has no column of its own; undefined where the file does not have it. */
function findCell(cells: readonly FileCell[], wanted: OwnField): string | undefined {
  const index = cells.findIndex(({ use }) => 'own' in use && use.own === wanted);
  return index === -1 ? undefined : `t${index}`;
}

/** What every row must have. */
function requiredChecks(cells: readonly FileCell[], idApp: number | undefined): Check[] {
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
  ];
}

/** The app of a row: its idApp, else that of its SDKKey, else the one that was given for all. */
function appSql(own: RowParts['own'], idApp: number | undefined): string {
  const given = idApp === undefined ? 'CAST(NULL AS BIGINT)' : String(idApp);
  const key = own.SDKKey === undefined ? given : `CASE WHEN ${own.SDKKey} IS NULL THEN ${given} ELSE keyed.id_app END`;
  return own.idApp === undefined ? key : `coalesce(${own.idApp}, ${key})`;
}

/** The app must be registered, and the one that both fields name. */
function appChecks({ idApp, SDKKey }: RowParts['own']): Check[] {
  const isByKey = idApp === undefined && SDKKey !== undefined;
  return [
    ...(idApp === undefined || SDKKey === undefined
      ? []
      : [{ reason: 'conflict' as const, field: 'SDKKey', sql: `${idApp} <> key_app` }]),
    { reason: 'unknown_app', field: isByKey ? 'SDKKey' : 'idApp', sql: 'is_registered IS NOT TRUE' },
  ];
}

/** Joins a row with the app of its key and the country of its codes; `selected` are the columns of them. */
function joinSql(
  { SDKKey }: RowParts['own'],
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

/** Further items of a list of columns. */
const more = (some: readonly string[]): string => some.map((one) => `, ${one}`).join('');

/** Builds the SQL of a file's rows. */
export function buildRowsSql(plan: RowPlan): RowsSql {
  const { dataset, cells, from, through, firstChecks, idApp, appsTable, isStrict } = plan;
  const { casts, values, parts: fieldParts, checks: fieldChecks, country, own } = planParts(dataset, cells);
  const checks: Check[] = [...firstChecks, ...requiredChecks(cells, idApp), ...fieldChecks, ...appChecks(own)];
  const time = own.tsEvent ?? 'CAST(NULL AS BIGINT)';
  const parts: Part[] = [
    { column: 'event_time', stored: `make_timestamptz(${time} * 1000000)`, text: `CAST(${time} AS VARCHAR)` },
    { column: 'id_app', stored: 'app', text: 'CAST(app AS VARCHAR)' },
    ...fieldParts,
  ];
  const identity = identitySql(parts);
  const eventId =
    own.eventId === undefined
      ? identity
      : `CASE WHEN ${own.eventId} IS NOT NULL THEN ${own.eventId} ELSE ${identity} END`;
  const filled = country?.columns ?? [];
  const stored = [
    { column: 'event_id', stored: eventId },
    ...parts.filter(({ column }) => !filled.some((one) => one.column === column)),
    ...filled,
  ];

  const kept = through.map((name) => `${name}, `).join('');
  const cellList = cells.map(({ sql }, index) => `${sql} AS t${index}`).join(', ');
  const faults = checks
    .map(({ sql, isDetail }, index) => (isStrict && isDetail ? '' : `WHEN ${sql} THEN ${index}`))
    .join('\n      ');
  // What is stored is asked of good rows only: a bad value may be an error to what stores it. Strictly, it may be one.
  const ifGood = (sql: string): string => (isStrict ? sql : `CASE WHEN fault IS NULL THEN ${sql} END`);
  const { joins, selected } = joinSql(own, appsTable, country);
  return {
    checks,
    checkedSql: `SELECT ${kept}fault, ${stored.map((part) => `${ifGood(part.stored)} AS ${sqlName(`s_${part.column}`)}`).join(', ')}
  FROM (SELECT *, CASE ${faults} END AS fault
  FROM (SELECT *, app IN (SELECT id_app FROM ${appsTable}) AS is_registered
  FROM (SELECT valued.*, ${appSql(own, idApp)} AS app${more(selected)}
  FROM (SELECT *${more(values)}
  FROM (SELECT *${more(casts)}
  FROM (SELECT ${kept}${cellList === '' ? 'NULL AS none' : cellList} FROM ${from}) AS cells) AS cast_cells) AS valued ${joins}) AS named) AS known) AS judged`,
    toColumns({ loadId, receivedAtMs, availableAtMs }) {
      const made: Readonly<Record<string, string>> = {
        // No condition of the query: the engine would bring it down to the file, with all that it is made of once more.
        ...(isStrict ? { event_id: `CASE WHEN fault IS NULL THEN s_event_id ELSE error('a bad row') END` } : {}),
        date: utcDateSql('s_event_time'),
        received_at: `make_timestamptz(${receivedAtMs} * 1000)`,
        available_at: `make_timestamptz(${availableAtMs} * 1000)`,
        load_id: sqlText(loadId),
      };
      const known = new Set(stored.map(({ column }) => column));
      return dataset.columns
        .filter(({ name }) => known.has(name) || made[name] !== undefined)
        .map(({ name, type }) => {
          const value = made[name] ?? sqlName(`s_${name}`);
          return `CAST(${value} AS ${type}) AS ${sqlName(name)}`;
        })
        .join(', ');
    },
  };
}
