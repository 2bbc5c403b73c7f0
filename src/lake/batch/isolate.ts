import { readFile, writeFile } from 'node:fs/promises';
import { removeFile } from '../../runtime/files/durable-file.ts';
import { isAppError } from '../../runtime/errors.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { writeDataFile } from '../files/data-file.ts';
import { convertSpool, toFailedLine, type Failure } from './convert.ts';

/** A line has to fail so often, each time beside an empty one that does not, before it is called too large. */
const triesOfLine = 3;

/** Says whether the engine has memory enough for a spool of these lines, from reading it to writing its rows. */
async function fits(duckdb: Duckdb, scratch: string, lines: readonly string[]): Promise<boolean> {
  try {
    await writeFile(scratch, lines.map((line) => `${line}\n`).join(''), { encoding: 'latin1', mode: 0o600 });
    await convertSpool(duckdb, scratch, lines.length);
    await writeDataFile(duckdb, 'SELECT * EXCLUDE (bad) FROM batch', `${scratch}.parquet`, 'young');
    return true;
  } catch (error) {
    if (isAppError(error, 'memory')) return false;
    throw error;
  } finally {
    await removeFile(scratch);
    await removeFile(`${scratch}.parquet`);
  }
}

async function isTooLarge(duckdb: Duckdb, scratch: string, line: string): Promise<boolean> {
  for (let attempt = 0; attempt < triesOfLine; attempt += 1) {
    // Where an empty line does not fit either, it is the engine, and no fault of the event's.
    if ((await fits(duckdb, scratch, [line])) || !(await fits(duckdb, scratch, ['{}']))) return false;
  }
  return true;
}

/**
 * Takes those lines out of a spool of one message that the engine has no memory for, each by itself, and returns them:
 * they are kept as failed events, so that they do not hold up all that follow. Errors: those of `convertSpool`, but
 * `memory`.
 */
export async function takeOutTooLarge(duckdb: Duckdb, spool: string): Promise<Failure[]> {
  // One character a byte: whatever the lines hold is written as it was.
  const lines = (await readFile(spool, 'latin1')).split('\n').filter((line) => line !== '');
  const good: string[] = [];
  const failures: Failure[] = [];
  for (const line of lines) {
    if (!(await isTooLarge(duckdb, `${spool}.one`, line))) good.push(line);
    else failures.push({ reason: 'too_large', ...toFailedLine(Buffer.from(line, 'latin1')) });
  }
  if (failures.length > 0)
    await writeFile(spool, good.map((line) => `${line}\n`).join(''), { encoding: 'latin1', mode: 0o600 });
  return failures;
}
