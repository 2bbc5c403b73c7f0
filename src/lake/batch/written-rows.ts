import { importDatasets, type Dataset } from '../../datasets/dataset.ts';
import { lineColumns } from '../../datasets/event-line.ts';
import type { EnrichedSelect } from '../files/enriched-rows.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';

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
const required = new Set(['event_id', 'kind', 'date', 'id_app', 'event_time', 'received_at', 'available_at']);

/** Columns of the line that a row may lack. */
export const optionalColumns: readonly string[] = lineColumns
  .map(({ name }) => name)
  .filter((name) => !required.has(name));

/** What the rows that are to be written have. */
export interface MeasuredRows {
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
      if (known.has(name)) return filled === undefined || required.has(name) || filled.has(name) ? [`r.${name}`] : [];
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
export interface RowsSelect {
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
