import { isUtf8 } from 'node:buffer';
import { removeFile } from '../../runtime/files/durable-file.ts';
import { isAppError } from '../../runtime/errors.ts';
import { getBytes } from '../../runtime/files/input-file.ts';
import { writeWorkFile } from '../../runtime/files/work-files.ts';
import type { FailedEvent, FailureReason } from '../files/failed-events.ts';

/** Events that could not be converted, as values; `failedAt` is added with the flush. */
export type Failure = Omit<FailedEvent, 'failedAt'>;

/** A line of a spool that cannot be written to the lake, by its place among the lines. */
export interface BadLine {
  readonly line: number;
  readonly reason: FailureReason;
}

/** Splits the bytes of a spool into its lines, without the line breaks; the last may lack its own. */
export function* splitLines(bytes: Buffer): Generator<Buffer> {
  for (let start = 0; start < bytes.length;) {
    const found = bytes.indexOf(0x0a, start);
    const end = found === -1 ? bytes.length : found;
    yield bytes.subarray(start, end);
    start = end + 1;
  }
}

/** A line as it is kept: as text, and as its bytes where they are no text. */
function toFailedLine(bytes: Buffer): Pick<Failure, 'line' | 'lineBase64'> {
  return { line: bytes.toString('utf8'), ...(isUtf8(bytes) ? {} : { lineBase64: bytes.toString('base64') }) };
}

/** Takes lines out of a spool as they were in the stream, byte for byte. */
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

/** What tries whether the engine has memory for a line: the batch tables. */
interface LineTrial {
  load(spool: string, events: number): Promise<{ writeUnjudged(file: string): Promise<void> }>;
}

/** A line has to fail so often, each time beside an empty one that does not, before it is called too large. */
const triesOfLine = 3;

const newline = Buffer.from('\n');

/** Writes a spool of lines, as the bytes that they are. */
function writeSpool(file: string, lines: readonly Buffer[]): Promise<void> {
  return writeWorkFile(file, Buffer.concat(lines.flatMap((line) => [line, newline])));
}

/** Says whether the engine has memory enough for one line, from reading it to writing its row. */
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
