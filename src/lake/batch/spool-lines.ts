import { isUtf8 } from 'node:buffer';
import { removeFile } from '../../runtime/files/durable-file.ts';
import { isAppError } from '../../runtime/errors.ts';
import { getBytes } from '../../runtime/files/input-file.ts';
import { writeWorkFile } from '../../runtime/files/work-files.ts';
import type { FailedEvent, FailureReason } from '../files/failed-events.ts';

/** An event that could not be converted; the flush adds `failedAt`. */
export type Failure = Omit<FailedEvent, 'failedAt'>;

/** A line that cannot be stored, by its index in the spool. */
export interface BadLine {
  readonly line: number;
  readonly reason: FailureReason;
}

/** Splits the bytes of a spool into lines without their line breaks; the last line may lack it. */
export function* splitLines(bytes: Buffer): Generator<Buffer> {
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
  load(spool: string, events: number): Promise<{ writeUnjudged(file: string): Promise<void> }>;
}

/** Failures of a line, each while an empty line passes, until it counts as too large. */
const triesOfLine = 3;

const newline = Buffer.from('\n');

function writeSpool(file: string, lines: readonly Buffer[]): Promise<void> {
  return writeWorkFile(file, Buffer.concat(lines.flatMap((line) => [line, newline])));
}

/** Reports whether the engine has the memory to read one line and write its row. */
async function fits(tables: LineTrial, scratch: string, line: Buffer): Promise<boolean> {
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

async function isTooLarge(tables: LineTrial, scratch: string, line: Buffer): Promise<boolean> {
  for (let attempt = 0; attempt < triesOfLine; attempt += 1) {
    // If an empty line fails too, the engine is the cause.
    if ((await fits(tables, scratch, line)) || !(await fits(tables, scratch, Buffer.from('{}')))) return false;
  }
  return true;
}

/**
 * Removes the lines of a spool of one message that the engine has no memory for, and returns them: they become failed
 * events and do not block the others. Reloads the tables. Errors: those of `load`, but `memory`.
 */
export async function takeOutTooLarge(tables: LineTrial, spool: string): Promise<Failure[]> {
  const good: Buffer[] = [];
  const failures: Failure[] = [];
  for (const line of splitLines(await getBytes(spool))) {
    if (!(await isTooLarge(tables, `${spool}.one`, line))) good.push(line);
    else failures.push({ reason: 'too_large', ...toFailedLine(line) });
  }
  if (failures.length > 0) await writeSpool(spool, good);
  return failures;
}
