import assert from 'node:assert/strict';
import { isUtf8 } from 'node:buffer';
import { parseLine } from '../../datasets/event-line.ts';
import { removeFile } from '../../runtime/files/durable-file.ts';
import { type AppError, isAppError } from '../../runtime/errors.ts';
import { getBytes } from '../../runtime/files/input-file.ts';
import { writeWorkFile } from '../../runtime/files/work-files.ts';
import type { FailedEvent, FailureReason } from '../files/failed-events.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { badSql, lineValuesSql, readLinesSql } from './line-sql.ts';

/** An event that could not be converted. The flush adds `failedAt`. */
export type Failure = Omit<FailedEvent, 'failedAt'>;

export interface BadLine {
  readonly line: number;
  readonly reason: FailureReason;
}

/** Splits a spool into lines without line breaks. The last line may lack it. */
function* splitLines(bytes: Buffer): Generator<Buffer> {
  for (let start = 0; start < bytes.length;) {
    const found = bytes.indexOf(0x0a, start);
    const end = found === -1 ? bytes.length : found;
    yield bytes.subarray(start, end);
    start = end + 1;
  }
}

function toFailedLine(bytes: Buffer): Pick<Failure, 'line' | 'lineBase64'> {
  return { line: bytes.toString('utf8'), ...(isUtf8(bytes) ? {} : { lineBase64: bytes.toString('base64') }) };
}

export async function readFailures(file: string, badLines: readonly BadLine[]): Promise<Failure[]> {
  if (badLines.length === 0) return [];
  const reasons = new Map(badLines.map(({ line, reason }) => [line, reason]));
  const failures: Failure[] = [];
  let line = 0;
  for (const bytes of splitLines(await getBytes(file))) {
    const reason = reasons.get(line);
    line += 1;
    if (reason !== undefined) failures.push({ reason, ...toFailedLine(bytes) });
  }
  return failures;
}

interface LineTrial {
  load(spool: string, events: number): Promise<{ writeUnclassified(file: string): Promise<void> }>;
}

/** Failed attempts after which a line counts as too large, if an empty line passes each time. */
const triesOfLine = 3;

const newline = Buffer.from('\n');

function writeSpool(file: string, lines: readonly Buffer[]): Promise<void> {
  return writeWorkFile(file, Buffer.concat(lines.flatMap((line) => [line, newline])));
}

/** Reports whether the engine has the memory to read a line and write its row. */
async function fits(tables: LineTrial, scratch: string, line: Buffer): Promise<boolean> {
  try {
    await writeSpool(scratch, [line]);
    const loaded = await tables.load(scratch, 1);
    await loaded.writeUnclassified(`${scratch}.parquet`);
    return true;
  } catch (error) {
    if (isAppError(error, 'memory')) return false;
    throw error;
  } finally {
    await removeFile(scratch);
    await removeFile(`${scratch}.parquet`);
  }
}

async function isTooLarge(tables: LineTrial, scratch: string, line: Buffer): Promise<boolean> {
  for (let attempt = 0; attempt < triesOfLine; attempt += 1) {
    // If an empty line fails too, the line is not the cause.
    if ((await fits(tables, scratch, line)) || !(await fits(tables, scratch, Buffer.from('{}')))) return false;
  }
  return true;
}

/** Removes and returns the lines that exceed the engine's memory. Reloads the tables. Errors: those of `load`. */
export async function extractOversizedLines(tables: LineTrial, spool: string): Promise<Failure[]> {
  const good: Buffer[] = [];
  const failures: Failure[] = [];
  for (const line of splitLines(await getBytes(spool))) {
    if (!(await isTooLarge(tables, `${spool}.one`, line))) good.push(line);
    else failures.push({ reason: 'too_large', ...toFailedLine(line) });
  }
  if (failures.length > 0) await writeSpool(spool, good);
  return failures;
}

/** A spool in the temporary table `batch`: the columns of an event line, `date`, and `bad`. */
export interface Converted {
  readonly events: number;
  readonly badLines: readonly BadLine[];
  lineOf(rowid: number): number;
  /** Why the engine refused the spool: a bad line, or a failed read. */
  readonly refused: AppError | undefined;
}

const batchSql = (file: string): string =>
  `CREATE OR REPLACE TEMP TABLE batch AS SELECT ${lineValuesSql()}, ${badSql()} AS bad ${readLinesSql(file)}`;

async function loadBatch(duckdb: Duckdb, file: string): Promise<number> {
  await duckdb.run(batchSql(file));
  const [row] = await duckdb.rows('SELECT count(*) AS n FROM batch');
  return Number(row?.['n']);
}

/** Loads the lines of a spool that DuckDB can read. Returns their indexes, and the bad lines. */
async function loadCleaned(duckdb: Duckdb, file: string) {
  const lineIndexes: number[] = [];
  const badLines: BadLine[] = [];
  const texts: string[] = [];
  let line = 0;
  for (const bytes of splitLines(await getBytes(file))) {
    const checked = parseLine(bytes);
    if ('text' in checked) {
      texts.push(`${checked.text}\n`);
      lineIndexes.push(line);
    } else badLines.push({ line, reason: checked.reason });
    line += 1;
  }
  const cleanFile = `${file}.clean`;
  try {
    await writeWorkFile(cleanFile, texts.join(''));
    assert.equal(await loadBatch(duckdb, cleanFile), lineIndexes.length, 'each line that was kept is a row');
  } finally {
    await removeFile(cleanFile);
  }
  return { lineIndexes, badLines };
}

/**
 * Converts a spool of `events` lines into the table `batch`. If the engine rejects it or reads another number of rows,
 * or with `eachLine`, each line is checked and invalid ones are left out. Errors: the engine's.
 */
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
    assert.equal(cleaned.lineIndexes.length + cleaned.badLines.length, events, 'each line of the spool is an event');
  const lineOf = (rowid: number): number => cleaned?.lineIndexes[rowid] ?? rowid;
  const bad = await duckdb.rows('SELECT rowid::INTEGER AS r FROM batch WHERE bad ORDER BY rowid');
  const badLines = [
    ...(cleaned?.badLines ?? []),
    ...bad.map((row): BadLine => ({ line: lineOf(Number(row['r'])), reason: 'bad_value' })),
  ];
  return { events, badLines, lineOf, refused };
}
