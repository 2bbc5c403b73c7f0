/**
 * Event lines become rows: conversion, then the verdict over repeats (deduplicate.ts).
 *
 * In: a spool of NDJSON lines, from the stream or from failed events. Out: the engine's temporary tables `batch`,
 * `dropped` and `batch_keys`, and the lines that cannot be rows, each with its reason.
 * Invariant: every line of the spool is a row, a repeat or a failed event; one bad line does not keep the others out.
 * Crash: nothing rests here; the tables and the cleaned spool go with the process, and the caller's folder is emptied
 * at start.
 */
import { isUtf8 } from 'node:buffer';
import { readFile, writeFile } from 'node:fs/promises';
import { removeFile } from '../../runtime/files/durable-file.ts';
import { isAppError, type AppError } from '../../runtime/errors.ts';
import { events as dataset } from '../../datasets/dataset.ts';
import { eventColumns, type ColumnType } from '../../datasets/event-fields.ts';
import { lineColumns, parseLine } from '../../datasets/event-line.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import type { FailedEvent, FailureReason } from '../files/failed-events.ts';

/** Events that could not be converted, as values; `failedAt` is added with the flush. */
export type Failure = Omit<FailedEvent, 'failedAt'>;

/** A line of a spool that cannot be written to the lake, by its place among the lines. */
export interface BadLine {
  readonly line: number;
  readonly reason: FailureReason;
}

/** A spool read into the engine's temporary table `batch`: the table's columns but `available_at`, and `bad`. */
export interface Converted {
  /** Lines that were there, good and bad. */
  readonly events: number;
  readonly badLines: readonly BadLine[];
  /** The place in the spool of the line that a row of `batch` was made of. */
  lineOf(rowid: number): number;
  /** Why the engine would not read the spool as it is: a bad line, or a read that failed. */
  readonly refused?: AppError;
}

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

/**
 * SQL that is true for a row that cannot be written as it is. DuckDB would round a fraction, so that counts as bad too.
 */
function badSql(): string {
  const missing = ['id_app', 'event_time', 'received_at'].map((name) => `${castSql(name, 'BIGINT')} IS NULL`);
  const wrong = lineColumns
    .filter(({ type }) => type !== 'VARCHAR' && type !== 'MAP(VARCHAR, VARCHAR)')
    .map(
      ({ name, type }) => `(r.${name} IS NOT NULL AND (${castSql(name, type)} IS NULL OR contains(r.${name}, '.')))`,
    );
  return [
    'TRY_CAST(r.event_id AS UUID) IS NULL',
    'length(r.event_id) IS DISTINCT FROM 36',
    `coalesce(r.kind NOT IN (${dataset.kinds.map(sqlText).join(', ')}), true)`,
    ...missing,
    ...wrong,
  ].join(' OR ');
}

const batchSql = (file: string): string => `
CREATE OR REPLACE TEMP TABLE batch AS
SELECT ${lineColumns.map(({ name, type }) => `${castSql(name, type)} AS ${name}`).join(', ')},
  CAST(${castSql('event_time', 'TIMESTAMPTZ')} AS DATE) AS date,
  ${badSql()} AS bad
FROM read_json(${sqlList([file])}, format = 'newline_delimited', maximum_object_size = 2097152, hive_partitioning = false, columns = {${lineColumns
  .map(({ name, type }) => `${sqlText(name)}: ${sqlText(type === 'MAP(VARCHAR, VARCHAR)' ? type : 'VARCHAR')}`)
  .join(', ')}}) AS r`;

function* splitLines(bytes: Buffer): Generator<Buffer> {
  for (let start = 0; start < bytes.length;) {
    const found = bytes.indexOf(0x0a, start);
    const end = found === -1 ? bytes.length : found;
    yield bytes.subarray(start, end);
    start = end + 1;
  }
}

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
  for (const bytes of splitLines(await readFile(file))) {
    const checked = parseLine(bytes);
    if ('text' in checked) {
      texts.push(`${checked.text}\n`);
      kept.push(line);
    } else badLines.push({ line, reason: checked.reason });
    line += 1;
  }
  await writeFile(cleanFile, texts.join(''), { mode: 0o600 });
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
    await loadBatch(duckdb, cleanFile);
  } finally {
    await removeFile(cleanFile);
  }
  return cleaned;
}

/**
 * Reads a spool of `events` lines into the table `batch`. One bad line would make DuckDB refuse the whole file: only
 * then, or when `eachLine` asks for it, each line is checked by itself. A bad event is a value with a reason, never an
 * error; the spool stays as it is, for `readFailures`. Errors: `sql`, `disk`.
 */
export async function convertSpool(duckdb: Duckdb, file: string, events: number, eachLine = false): Promise<Converted> {
  let refused: AppError | undefined;
  const loaded = eachLine
    ? -1
    : await loadBatch(duckdb, file).catch((error: unknown) => {
        if (!isAppError(error, 'sql')) throw error;
        refused = error;
        return -1;
      });
  const cleaned = loaded === events ? undefined : await loadCleaned(duckdb, file);
  const lineOf = (rowid: number): number => cleaned?.kept[rowid] ?? rowid;
  const bad = await duckdb.rows('SELECT rowid::INTEGER AS r FROM batch WHERE bad ORDER BY rowid');
  const badLines = [
    ...(cleaned?.badLines ?? []),
    ...bad.map((row): BadLine => ({ line: lineOf(Number(row['r'])), reason: 'bad_value' })),
  ];
  return { events, badLines, lineOf, ...(refused === undefined ? {} : { refused }) };
}

/** A line as it is kept: as text, and as its bytes where they are no text. */
export function toFailedLine(bytes: Buffer): Pick<Failure, 'line' | 'lineBase64'> {
  return { line: bytes.toString('utf8'), ...(isUtf8(bytes) ? {} : { lineBase64: bytes.toString('base64') }) };
}

/** Takes lines out of a spool as they were in the stream, byte for byte. */
export async function readFailures(file: string, badLines: readonly BadLine[]): Promise<Failure[]> {
  if (badLines.length === 0) return [];
  const reasons = new Map(badLines.map(({ line, reason }) => [line, reason]));
  const failures: Failure[] = [];
  let line = 0;
  for (const bytes of splitLines(await readFile(file))) {
    const reason = reasons.get(line);
    line += 1;
    if (reason !== undefined) failures.push({ reason, ...toFailedLine(bytes) });
  }
  return failures;
}

const columnList = eventColumns.map(({ name }) => name).join(', ');

/** The query for the rows of `batch` that are to be written. */
export function rowsSql(availableAtMs: number): string {
  return `SELECT ${columnList} FROM (SELECT *, make_timestamptz(${availableAtMs * 1000}) AS available_at FROM batch
    WHERE NOT bad AND rowid NOT IN (SELECT r FROM dropped))`;
}
