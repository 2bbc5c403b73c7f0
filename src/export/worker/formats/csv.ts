import { hasHeader } from '../../jobs/export-spec.ts';
import type { TextRows } from './text-parts.ts';

const newline = 0x0a;
const quote = 0x22;

/** Finds the line breaks outside quotes, by the native search: each byte is looked at by it, and few of them here. */
function findRowEnds(buffer: Buffer): number[] {
  const ends: number[] = [];
  let isQuoted = false;
  let quoteAt = buffer.indexOf(quote);
  for (let at = buffer.indexOf(newline); at !== -1; at = buffer.indexOf(newline, at + 1)) {
    for (; quoteAt !== -1 && quoteAt < at; quoteAt = buffer.indexOf(quote, quoteAt + 1)) isQuoted = !isQuoted;
    if (!isQuoted) ends.push(at + 1);
  }
  return ends;
}

/** CSV of service.md 5: a header row, RFC 4180 quoting, LF. */
export const csvRows: TextRows = { extension: 'csv', hasHeader: hasHeader.csv, findRowEnds };

const cellOptions = "DELIMITER ',', QUOTE '\"', ESCAPE '\"'";

/** What follows FORMAT in the engine's COPY. */
export const csvCopyOptions = `csv, HEADER true, ${cellOptions}`;
/** The same for rows without a header. */
export const csvAppendOptions = `csv, HEADER false, ${cellOptions}`;
