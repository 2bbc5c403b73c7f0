import type { TextRows } from './text-parts.ts';

const newline = 0x0a;
const quote = 0x22;

/**
 * Finds the end (exclusive) of the row that starts at `start`: a line break outside quotes. -1: it ends beyond the
 * buffer.
 */
function findRowEnd(buffer: Buffer, start: number): number {
  let quoted = false;
  for (let index = start; index < buffer.length; index += 1) {
    const byte = buffer[index];
    if (byte === quote) quoted = !quoted;
    else if (byte === newline && !quoted) return index + 1;
  }
  return -1;
}

/** CSV of service.md 5: a header row, RFC 4180 quoting, LF. */
export const csvRows: TextRows = { extension: 'csv', hasHeader: true, findRowEnd };

/** What follows FORMAT in the engine's COPY. */
export const csvCopyOptions = "csv, HEADER true, DELIMITER ',', QUOTE '\"', ESCAPE '\"'";
