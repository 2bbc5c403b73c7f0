import assert from 'node:assert/strict';
import { removeFile } from '../../runtime/files/durable-file.ts';
import { isAppError, type AppError } from '../../runtime/errors.ts';
import { getBytes } from '../../runtime/files/text-file.ts';
import { writeWorkFile } from '../../runtime/files/work-files.ts';
import { importKinds } from '../../datasets/dataset.ts';
import type { ColumnType } from '../../datasets/field-schema.ts';
import { lineColumns, parseLine } from '../../datasets/event-line.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText, utcDateSql } from '../sql/literals.ts';
import { splitLines, type BadLine } from './spool-lines.ts';

/** A spool read into the temporary table `batch`: the columns of an event line, `date`, and `bad`. */
export interface Converted {
  /** Lines that were there, good and bad. */
  readonly events: number;
  readonly badLines: readonly BadLine[];
  /** The place in the spool of the line that a row of `batch` was made of. */
  lineOf(rowid: number): number;
  /** Why the engine would not read the spool as it is: a bad line, or a read that failed. */
  readonly refused: AppError | undefined;
}

/** The query for all rows of `batch`, good and bad. */
export const unjudgedRowsSql = 'SELECT * EXCLUDE (bad) FROM batch';

/** Upper bound of a time in the lake: the end of year 9999. */
const maxSeconds = 253_402_300_799;

/** SQL that turns the text of a column into its type; NULL when it cannot. */
function castSql(name: string, type: ColumnType): string {
  const text = `r.${name}`;
  const bounded = (unit: number): string =>
    `CASE WHEN TRY_CAST(${text} AS BIGINT) BETWEEN 0 AND ${maxSeconds * unit} THEN TRY_CAST(${text} AS BIGINT) END`;
  if (name === 'event_time') return `make_timestamptz((${bounded(1)}) * 1000000)`;
  if (name === 'received_at') return `make_timestamptz((${bounded(1000)}) * 1000)`;
  if (type === 'VARCHAR' || type === 'MAP(VARCHAR, VARCHAR)') return text;
  return `TRY_CAST(${text} AS ${type})`;
}

/** The number of a decimal's places; 0 for every other type. */
const placesOf = (type: ColumnType): number => Number(/^DECIMAL\(\d+,(\d+)\)$/.exec(type)?.[1] ?? 0);

/** SQL that is true for a text that DuckDB would round: one with more decimal places than its type has. */
function roundedSql(name: string, type: ColumnType): string {
  const places = placesOf(type);
  return places === 0
    ? `contains(r.${name}, '.')`
    : `NOT regexp_full_match(r.${name}, '-?[0-9]+([.][0-9]{1,${places}})?')`;
}

/**
 * SQL that is true for a row that cannot be written as it is. DuckDB would round a fraction, so that counts as bad too.
 */
function badSql(): string {
  const missing = ['id_app', 'event_time', 'received_at'].map((name) => `${castSql(name, 'BIGINT')} IS NULL`);
  const wrong = lineColumns
    .filter(({ type }) => type !== 'VARCHAR' && type !== 'MAP(VARCHAR, VARCHAR)')
    .map(
      ({ name, type }) => `(r.${name} IS NOT NULL AND (${castSql(name, type)} IS NULL OR ${roundedSql(name, type)}))`,
    );
  return [
    'TRY_CAST(r.event_id AS UUID) IS NULL',
    'length(r.event_id) IS DISTINCT FROM 36',
    `coalesce(r.kind NOT IN (${[...importKinds.keys()].map(sqlText).join(', ')}), true)`,
    ...missing,
    ...wrong,
  ].join(' OR ');
}

const batchSql = (file: string): string => `
CREATE OR REPLACE TEMP TABLE batch AS
SELECT ${lineColumns.map(({ name, type }) => `${castSql(name, type)} AS ${name}`).join(', ')},
  ${utcDateSql(castSql('event_time', 'TIMESTAMPTZ'))} AS date,
  ${badSql()} AS bad
FROM read_json(${sqlList([file])}, format = 'newline_delimited', maximum_object_size = 2097152, hive_partitioning = false, columns = {${lineColumns
  .map(({ name, type }) => `${sqlText(name)}: ${sqlText(type === 'MAP(VARCHAR, VARCHAR)' ? type : 'VARCHAR')}`)
  .join(', ')}}) AS r`;

/**
 * Writes the lines of a spool that DuckDB can read to another file; gives their places, and the lines that had to be
 * left out.
 */
async function cleanSpool(
  file: string,
  cleanFile: string,
): Promise<{ readonly kept: number[]; readonly badLines: BadLine[] }> {
  const kept: number[] = [];
  const badLines: BadLine[] = [];
  const texts: string[] = [];
  let line = 0;
  for (const bytes of splitLines(await getBytes(file))) {
    const checked = parseLine(bytes);
    if ('text' in checked) {
      texts.push(`${checked.text}\n`);
      kept.push(line);
    } else badLines.push({ line, reason: checked.reason });
    line += 1;
  }
  await writeWorkFile(cleanFile, texts.join(''));
  return { kept, badLines };
}

async function loadBatch(duckdb: Duckdb, file: string): Promise<number> {
  await duckdb.run(batchSql(file));
  const [row] = await duckdb.rows('SELECT count(*) AS n FROM batch');
  return Number(row?.['n']);
}

/** Checks each line of a spool by itself, and loads the good ones. */
async function loadCleaned(
  duckdb: Duckdb,
  file: string,
): Promise<{ readonly kept: number[]; readonly badLines: BadLine[] }> {
  const cleanFile = `${file}.clean`;
  const cleaned = await cleanSpool(file, cleanFile);
  try {
    const loaded = await loadBatch(duckdb, cleanFile);
    assert.equal(loaded, cleaned.kept.length, 'each line that was kept is a row');
  } finally {
    await removeFile(cleanFile);
  }
  return cleaned;
}

/** Reads a spool of `events` lines into the table `batch`, for `load` of batch-tables.ts, which says how. */
export async function convertSpool(
  duckdb: Duckdb,
  file: string,
  events: number,
  eachLine: boolean,
): Promise<Converted> {
  let refused: AppError | undefined;
  const loaded = eachLine
    ? -1
    : await loadBatch(duckdb, file).catch((error: unknown) => {
        if (!isAppError(error, 'sql')) throw error;
        refused = error;
        return -1;
      });
  const cleaned = loaded === events ? undefined : await loadCleaned(duckdb, file);
  if (cleaned !== undefined)
    assert.equal(cleaned.kept.length + cleaned.badLines.length, events, 'each line of the spool is an event');
  const lineOf = (rowid: number): number => cleaned?.kept[rowid] ?? rowid;
  const bad = await duckdb.rows('SELECT rowid::INTEGER AS r FROM batch WHERE bad ORDER BY rowid');
  const badLines = [
    ...(cleaned?.badLines ?? []),
    ...bad.map((row): BadLine => ({ line: lineOf(Number(row['r'])), reason: 'bad_value' })),
  ];
  return { events, badLines, lineOf, refused };
}
