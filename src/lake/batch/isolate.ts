import { removeFile } from '../../runtime/files/durable-file.ts';
import { isAppError } from '../../runtime/errors.ts';
import { getBytes } from '../../runtime/files/input-file.ts';
import { writeWorkFile } from '../../runtime/files/work-files.ts';
import type { BatchTables } from './batch-tables.ts';
import { splitLines, toFailedLine, type Failure } from './spool-lines.ts';

/** A line has to fail so often, each time beside an empty one that does not, before it is called too large. */
const triesOfLine = 3;

const newline = Buffer.from('\n');

/** Writes a spool of lines, as the bytes that they are. */
function writeSpool(file: string, lines: readonly Buffer[]): Promise<void> {
  return writeWorkFile(file, Buffer.concat(lines.flatMap((line) => [line, newline])));
}

/** Says whether the engine has memory enough for one line, from reading it to writing its row. */
async function fits(tables: BatchTables, scratch: string, line: Buffer): Promise<boolean> {
  try {
    await writeSpool(scratch, [line]);
    const loaded = await tables.load(scratch, 1);
    await loaded.writeUnjudged(`${scratch}.parquet`);
    return true;
  } catch (error) {
    if (isAppError(error, 'memory')) return false;
    throw error;
  } finally {
    await removeFile(scratch);
    await removeFile(`${scratch}.parquet`);
  }
}

async function isTooLarge(tables: BatchTables, scratch: string, line: Buffer): Promise<boolean> {
  for (let attempt = 0; attempt < triesOfLine; attempt += 1) {
    // Where an empty line does not fit either, it is the engine, and no fault of the event's.
    if ((await fits(tables, scratch, line)) || !(await fits(tables, scratch, Buffer.from('{}')))) return false;
  }
  return true;
}

/**
 * Takes those lines out of a spool of one message that the engine has no memory for, each by itself, and returns them:
 * they are kept as failed events, so that they do not hold up all that follow. The tables have another batch then.
 * Errors: those of `load`, but `memory`.
 */
export async function takeOutTooLarge(tables: BatchTables, spool: string): Promise<Failure[]> {
  const good: Buffer[] = [];
  const failures: Failure[] = [];
  for (const line of splitLines(await getBytes(spool))) {
    if (!(await isTooLarge(tables, `${spool}.one`, line))) good.push(line);
    else failures.push({ reason: 'too_large', ...toFailedLine(line) });
  }
  if (failures.length > 0) await writeSpool(spool, good);
  return failures;
}
