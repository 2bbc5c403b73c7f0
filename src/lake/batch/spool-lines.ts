import { isUtf8 } from 'node:buffer';
import type { FailedEvent, FailureReason } from '../files/failed-events.ts';
import { getBytes } from '../../runtime/files/input-file.ts';

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
export function toFailedLine(bytes: Buffer): Pick<Failure, 'line' | 'lineBase64'> {
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
