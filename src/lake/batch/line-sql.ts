import { type Dataset, importDatasets, importKinds } from '../../datasets/dataset.ts';
import { lineColumns } from '../../datasets/event-line.ts';
import type { Column, ColumnType } from '../../datasets/field-schema.ts';
import { sqlList, sqlText, utcDateSql } from '../sql/literals.ts';
import type { EnrichedSelect } from '../files/enriched-rows.ts';
import type { Duckdb } from '../sql/duckdb.ts';

/** SQL reads lines as rows `r` of texts. With other types, DuckDB would refuse a file for one value, or round it. */

/** End of the year 9999, s: the last time that the lake stores. */
const maxSeconds = 253_402_300_799;

type NamedType = Pick<Column, 'name' | 'type'>;

export function castSql({ name, type }: NamedType): string {
  const text = `r.${name}`;
  const bounded = (unit: number): string =>
    `CASE WHEN TRY_CAST(${text} AS BIGINT) BETWEEN 0 AND ${maxSeconds * unit} THEN TRY_CAST(${text} AS BIGINT) END`;
  if (name === 'event_time') return `make_timestamptz((${bounded(1)}) * 1000000)`;
  if (name === 'received_at') return `make_timestamptz((${bounded(1000)}) * 1000)`;
  if (isText(type)) return text;
  return `TRY_CAST(${text} AS ${type})`;
}

const isText = (type: ColumnType): boolean => type === 'VARCHAR' || type === 'MAP(VARCHAR, VARCHAR)';

const placesOf = (type: ColumnType): number => Number(/^DECIMAL\(\d+,(\d+)\)$/.exec(type)?.[1] ?? 0);

/** Returns a condition that a text has too many decimal places, which DuckDB would round. */
function roundedSql(name: string, type: ColumnType): string {
  const places = placesOf(type);
  return places === 0
    ? `contains(r.${name}, '.')`
    : `NOT regexp_full_match(r.${name}, '-?[0-9]+([.][0-9]{1,${places}})?')`;
}

/** Columns that every row has besides its id and kind. */
const required = new Set(['id_app', 'event_time', 'received_at']);

/** Returns a condition, never NULL, that a row cannot be stored. `valueSql` returns a column's value. */
export function badSql(columns: readonly Column[] = lineColumns, valueSql = castSql): string {
  const wrong = columns
    .filter(({ type }) => !isText(type))
    .map((column) => {
      const { name, type } = column;
      const isNoValue = `${valueSql(column)} IS NULL`;
      return required.has(name)
        ? `${isNoValue} OR ${roundedSql(name, type)}`
        : `(r.${name} IS NOT NULL AND (${isNoValue} OR ${roundedSql(name, type)}))`;
    });
  return [
    'TRY_CAST(r.event_id AS UUID) IS NULL',
    // In bytes: only ASCII is a UUID.
    'strlen(r.event_id) <> 36',
    `(r.kind IN (${[...importKinds.keys()].map(sqlText).join(', ')})) IS NOT TRUE`,
    ...wrong,
  ].join(' OR ');
}

/** SQL of a row's columns and date. `valueSql` returns a column's value. */
export function lineValuesSql(columns: readonly Column[] = lineColumns, valueSql = castSql): string {
  const values = columns.map((column) => `${valueSql(column)} AS ${column.name}`);
  return `${values.join(', ')}, ${utcDateSql(valueSql({ name: 'event_time', type: 'TIMESTAMPTZ' }))} AS date`;
}

export function readLinesSql(file: string): string {
  const columns = lineColumns.map(
    ({ name, type }) => `${sqlText(name)}: ${sqlText(type === 'MAP(VARCHAR, VARCHAR)' ? type : 'VARCHAR')}`,
  );
  return `FROM read_json(${sqlList([file])}, format = 'newline_delimited', maximum_object_size = 2097152, hive_partitioning = false, columns = {${columns.join(', ')}}) AS r`;
}

const writtenSql = ({ kinds }: Dataset): string =>
  `FROM batch WHERE NOT bad AND kind IN (${kinds.map(sqlText).join(', ')}) AND rowid NOT IN (SELECT r FROM dropped)`;

const known = new Set([...lineColumns.map(({ name }) => name), 'date', 'available_at']);

/** Returns the constant value of a column per kind, if the pipeline defines one. */
function constantSql({ fields, kindSpecs }: Dataset, column: string): string | undefined {
  const cases = [...kindSpecs].flatMap(([kind, { values }]) =>
    Object.entries(values)
      .filter(([name]) => fields.some((field) => field.name === name && field.schema['x-column'] === column))
      .map(([, value]) => `WHEN ${sqlText(kind)} THEN ${typeof value === 'number' ? value : sqlText(value)}`),
  );
  return cases.length === 0 ? undefined : `CASE r.kind ${cases.join(' ')} END`;
}

const constants = new Map(
  importDatasets.map((dataset) => [
    dataset,
    new Map(dataset.columns.map(({ name }) => [name, constantSql(dataset, name)] as const)),
  ]),
);

const always = new Set(['event_id', 'kind', 'date', 'id_app', 'event_time', 'received_at', 'available_at']);

export const optionalColumns: readonly string[] = lineColumns
  .map(({ name }) => name)
  .filter((name) => !always.has(name));

/** SQL of the columns of a row `r`. `filled` leaves columns without a value out. */
function columnList(
  dataset: Dataset,
  select: EnrichedSelect | undefined,
  filled: ReadonlySet<string> | undefined,
): string {
  return dataset.columns
    .flatMap(({ name, type }) => {
      if (known.has(name)) return filled === undefined || always.has(name) || filled.has(name) ? [`r.${name}`] : [];
      const own = constants.get(dataset)?.get(name);
      const found = select?.values.get(name);
      // A text may be an ENUM, which is written faster and has the same type in the file.
      if (own === undefined && found !== undefined && type === 'VARCHAR') return [`${found} AS ${name}`];
      if (own === undefined && found === undefined && filled !== undefined) return [];
      return [`CAST(${own ?? found ?? 'NULL'} AS ${type}) AS ${name}`];
    })
    .join(', ');
}

export async function measureRows(duckdb: Duckdb, dataset: Dataset) {
  const [row] = await duckdb.rows(
    `SELECT count(*) AS n, sum(cardinality(custom_event_params))::BIGINT AS entries,
       [${optionalColumns.map((name) => `count(${name})`).join(', ')}] AS counts ${writtenSql(dataset)}`,
  );
  const counts = (row?.['counts'] ?? []) as readonly bigint[];
  return {
    rows: Number(row?.['n']),
    entries: Number(row?.['entries'] ?? 0),
    filled: new Set(optionalColumns.filter((_, index) => Number(counts[index]) > 0)),
  };
}

interface RowsSelect {
  /** SQL of the rows from `FROM` on [the new rows of `batch`]. */
  readonly from?: string;
  readonly enriched?: EnrichedSelect | undefined;
  /** Columns that may have a value [all]. Fewer save up to three quarters of the time. */
  readonly filled?: ReadonlySet<string>;
}

export function rowsSql(
  dataset: Dataset,
  availableAtMs: number,
  { from = writtenSql(dataset), enriched, filled }: RowsSelect = {},
): string {
  return `SELECT ${columnList(dataset, enriched, filled)} FROM (SELECT *, make_timestamptz(${availableAtMs * 1000}) AS available_at ${from}) AS r ${enriched?.joins ?? ''}`;
}
