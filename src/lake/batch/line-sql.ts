import { importKinds } from '../../datasets/dataset.ts';
import { lineColumns } from '../../datasets/event-line.ts';
import type { Column, ColumnType } from '../../datasets/field-schema.ts';
import { sqlList, sqlText, utcDateSql } from '../sql/literals.ts';

/**
 * SQL that reads event lines: each line is a row `r` of texts, whose values and faults are expressions. Texts, because a
 * value of another type would make the engine refuse the whole file, or round a fraction in silence.
 */

/** Upper bound of a time in the lake: the end of year 9999. */
const maxSeconds = 253_402_300_799;

/** SQL that turns the text of a column into its type; NULL when it cannot. */
export function castSql(name: string, type: ColumnType): string {
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
 * DuckDB would round a fraction, so that counts as bad too.
 */
export function badSql(columns: readonly Column[] = lineColumns): string {
  const wrong = columns
    .filter(({ type }) => !isText(type))
    .map(({ name, type }) => {
      const isNoValue = `${castSql(name, type)} IS NULL`;
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

/** The values of a row: its columns, and its date. */
export function lineValuesSql(columns: readonly Column[] = lineColumns): string {
  const values = columns.map(({ name, type }) => `${castSql(name, type)} AS ${name}`);
  return `${values.join(', ')}, ${utcDateSql(castSql('event_time', 'TIMESTAMPTZ'))} AS date`;
}

/** `FROM` the lines of a file, as rows `r` of texts. */
export function readLinesSql(file: string): string {
  const columns = lineColumns.map(
    ({ name, type }) => `${sqlText(name)}: ${sqlText(type === 'MAP(VARCHAR, VARCHAR)' ? type : 'VARCHAR')}`,
  );
  return `FROM read_json(${sqlList([file])}, format = 'newline_delimited', maximum_object_size = 2097152, hive_partitioning = false, columns = {${columns.join(', ')}}) AS r`;
}
