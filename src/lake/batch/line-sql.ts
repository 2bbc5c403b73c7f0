import { type Dataset, importDatasets, importKinds } from '../../datasets/dataset.ts';
import { lineColumns } from '../../datasets/event-line.ts';
import type { Column, ColumnType } from '../../datasets/field-schema.ts';
import { sqlList, sqlText, utcDateSql } from '../sql/literals.ts';
import type { EnrichedSelect } from '../files/enriched-rows.ts';
import type { Duckdb } from '../sql/duckdb.ts';

/**
 * SQL that reads event lines: each line is a row `r` of texts, whose values and faults are expressions. Texts, because a
 * value of another type would make the engine refuse the whole file, or round a fraction in silence.
 */

/** Upper bound of a time in the lake: the end of year 9999. */
const maxSeconds = 253_402_300_799;

/** What the SQL of a column is made of. */
type NamedType = Pick<Column, 'name' | 'type'>;

/** SQL of a column's value: its text, turned into its type; NULL when it cannot be. */
export function castSql({ name, type }: NamedType): string {
  const text = `r.${name}`;
  const bounded = (unit: number): string =>
    `CASE WHEN TRY_CAST(${text} AS BIGINT) BETWEEN 0 AND ${maxSeconds * unit} THEN TRY_CAST(${text} AS BIGINT) END`;
  if (name === 'event_time') return `make_timestamptz((${bounded(1)}) * 1000000)`;
  if (name === 'received_at') return `make_timestamptz((${bounded(1000)}) * 1000)`;
  if (isText(type)) return text;
  return `TRY_CAST(${text} AS ${type})`;
}

/** Says whether a column takes the text of a line as it is. */
const isText = (type: ColumnType): boolean => type === 'VARCHAR' || type === 'MAP(VARCHAR, VARCHAR)';

/** The number of a decimal's places; 0 for every other type. */
const placesOf = (type: ColumnType): number => Number(/^DECIMAL\(\d+,(\d+)\)$/.exec(type)?.[1] ?? 0);

/** SQL that is true for a text that DuckDB would round: one with more decimal places than its type has. */
function roundedSql(name: string, type: ColumnType): string {
  const places = placesOf(type);
  return places === 0
    ? `contains(r.${name}, '.')`
    : `NOT regexp_full_match(r.${name}, '-?[0-9]+([.][0-9]{1,${places}})?')`;
}

/** Columns without which no line is a row, beside its id and its kind. */
const required = new Set(['id_app', 'event_time', 'received_at']);

/**
 * SQL that is true for a row that cannot be written as it is, of rows that have nothing but these columns; never NULL.
 * DuckDB would round a fraction, so that counts as bad too. `valueSql` says where a row has the value of a column.
 */
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
    // Bytes: only ASCII is a UUID.
    'strlen(r.event_id) <> 36',
    `(r.kind IN (${[...importKinds.keys()].map(sqlText).join(', ')})) IS NOT TRUE`,
    ...wrong,
  ].join(' OR ');
}

/** The values of a row: its columns, and its date. `valueSql` says where the row has them. */
export function lineValuesSql(columns: readonly Column[] = lineColumns, valueSql = castSql): string {
  const values = columns.map((column) => `${valueSql(column)} AS ${column.name}`);
  return `${values.join(', ')}, ${utcDateSql(valueSql({ name: 'event_time', type: 'TIMESTAMPTZ' }))} AS date`;
}

/** `FROM` the lines of a file, as rows `r` of texts. */
export function readLinesSql(file: string): string {
  const columns = lineColumns.map(
    ({ name, type }) => `${sqlText(name)}: ${sqlText(type === 'MAP(VARCHAR, VARCHAR)' ? type : 'VARCHAR')}`,
  );
  return `FROM read_json(${sqlList([file])}, format = 'newline_delimited', maximum_object_size = 2097152, hive_partitioning = false, columns = {${columns.join(', ')}}) AS r`;
}

/**
 * The rows of a judged batch as they are written to the table of a dataset: the columns of their lines, what the pipeline
 * says of their kinds, and what is known of their addresses and User-Agents.
 */

/** The rows of `batch` that are to be written to the table of a dataset. */
const writtenSql = ({ kinds }: Dataset): string =>
  `FROM batch WHERE NOT bad AND kind IN (${kinds.map(sqlText).join(', ')}) AND rowid NOT IN (SELECT r FROM dropped)`;

const known = new Set([...lineColumns.map(({ name }) => name), 'date', 'available_at']);

/** What the rows of each kind have in a column by its pipeline's word; undefined where none says anything. */
function constantSql({ fields, kindSpecs }: Dataset, column: string): string | undefined {
  const cases = [...kindSpecs].flatMap(([kind, { values }]) =>
    Object.entries(values)
      .filter(([name]) => fields.some((field) => field.name === name && field.schema['x-column'] === column))
      .map(([, value]) => `WHEN ${sqlText(kind)} THEN ${typeof value === 'number' ? value : sqlText(value)}`),
  );
  return cases.length === 0 ? undefined : `CASE r.kind ${cases.join(' ')} END`;
}

/** What the pipeline's word gives the columns of a dataset's rows, by the column. */
const constants = new Map(
  importDatasets.map((dataset) => [
    dataset,
    new Map(dataset.columns.map(({ name }) => [name, constantSql(dataset, name)] as const)),
  ]),
);

/** Columns that every row has. */
const always = new Set(['event_id', 'kind', 'date', 'id_app', 'event_time', 'received_at', 'available_at']);

/** Columns of the line that a row may lack. */
export const optionalColumns: readonly string[] = lineColumns
  .map(({ name }) => name)
  .filter((name) => !always.has(name));

/** What the rows that are to be written have. */
interface MeasuredRows {
  readonly rows: number;
  /** Entries of their maps. */
  readonly entries: number;
  /** The columns of their lines in which any has a value. */
  readonly filled: ReadonlySet<string>;
}

/**
 * The columns of a row `r`: those of its line, those that the service adds, and what is known of the others. `filled`:
 * columns of the line that are in none but these are left out, and so are those that nothing is known of.
 */
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
      // A text that was found may be an enumeration, which a file has as texts too, and is written faster.
      if (own === undefined && found !== undefined && type === 'VARCHAR') return [`${found} AS ${name}`];
      if (own === undefined && found === undefined && filled !== undefined) return [];
      return [`CAST(${own ?? found ?? 'NULL'} AS ${type}) AS ${name}`];
    })
    .join(', ');
}

/** Measures the rows that are to be written to a dataset's table. */
export async function measureRows(duckdb: Duckdb, dataset: Dataset): Promise<MeasuredRows> {
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

/** How rows are selected that are to be written. */
interface RowsSelect {
  /** SQL of rows of a dataset's kinds, from `FROM` on; the rows of `batch` that are to be written unless given. */
  readonly from?: string;
  /** What is known of their addresses and User-Agents. */
  readonly enriched?: EnrichedSelect | undefined;
  /**
   * Columns of the line that any row may have a value in. The others are left out, and so are columns that nothing is
   * known of: readers know those from the table's empty file, and to write them takes a quarter of the time. All columns
   * unless given.
   */
  readonly filled?: ReadonlySet<string>;
}

/** The query for the rows that are to be written to a dataset's table. */
export function rowsSql(
  dataset: Dataset,
  availableAtMs: number,
  { from = writtenSql(dataset), enriched, filled }: RowsSelect = {},
): string {
  return `SELECT ${columnList(dataset, enriched, filled)} FROM (SELECT *, make_timestamptz(${availableAtMs * 1000}) AS available_at ${from}) AS r ${enriched?.joins ?? ''}`;
}
