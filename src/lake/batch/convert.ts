import assert from 'node:assert/strict';
import { removeFile } from '../../runtime/files/durable-file.ts';
import { type AppError, isAppError } from '../../runtime/errors.ts';
import { getBytes } from '../../runtime/files/input-file.ts';
import { writeWorkFile } from '../../runtime/files/work-files.ts';
import { parseLine } from '../../datasets/event-line.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { badSql, lineValuesSql, readLinesSql } from './line-sql.ts';
import { type BadLine, splitLines } from './spool-lines.ts';

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

/** Loads the lines of a spool that DuckDB can read; returns their indexes, and the bad lines. */
async function loadCleaned(duckdb: Duckdb, file: string) {
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
  const cleanFile = `${file}.clean`;
  try {
    await writeWorkFile(cleanFile, texts.join(''));
    assert.equal(await loadBatch(duckdb, cleanFile), kept.length, 'each line that was kept is a row');
  } finally {
    await removeFile(cleanFile);
  }
  return { kept, badLines };
}

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
