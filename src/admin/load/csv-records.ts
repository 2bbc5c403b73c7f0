import { parseCells, separators, type Separator } from '../../runtime/csv.ts';

/**
 * Positions of CSV records, which the engine does not report. Delimiters are commas, semicolons, tabs or bars; quotes
 * are doubled within quotes; lines end with LF or CRLF.
 */

const quote = 0x22;
const space = 0x20;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const maxHeaderBytes = 1024 * 1024;

/** The position of a record. The engine skips blank records if the file has several columns. */
interface RecordPosition {
  readonly line: number;
  readonly offset: number;
  readonly bytes: number;
  readonly isBlank: boolean;
}

/** State within a cell; `closed` is after a quote that a further quote would continue. */
type CellState = 'start' | 'plain' | 'quoted' | 'closed';

/** Returns the state after a byte. As for the engine, a quote within a plain cell has no meaning. */
function stateBehind(state: CellState, byte: number, delimiter: number | undefined): CellState {
  if (state === 'quoted') return byte === quote ? 'closed' : 'quoted';
  if (byte === delimiter || byte === lineFeed) return 'start';
  if (byte === space && state !== 'plain') return state;
  return byte === quote && state !== 'plain' ? 'quoted' : 'plain';
}

/** Yields the positions of all records, the header included; without a delimiter each line is one. */
export async function* walkRecords(
  chunks: AsyncIterable<Uint8Array>,
  delimiter?: string,
): AsyncGenerator<RecordPosition> {
  const between = delimiter?.charCodeAt(0);
  let [line, recordLine, offset, recordOffset] = [1, 1, 0, 0];
  let [isBlank, any] = [true, false];
  let state: CellState = 'start';
  for await (const chunk of chunks) {
    for (const byte of chunk) {
      any = true;
      offset += 1;
      if (between !== undefined) state = stateBehind(state, byte, between);
      if (byte === lineFeed) {
        line += 1;
        if (state !== 'quoted') {
          yield { line: recordLine, offset: recordOffset, bytes: offset - recordOffset, isBlank };
          [recordLine, recordOffset, isBlank, any] = [line, offset, true, false];
        }
        continue;
      }
      if (byte !== carriageReturn) isBlank = false;
    }
  }
  if (any) yield { line: recordLine, offset: recordOffset, bytes: offset - recordOffset, isBlank };
}

/** Returns the line of the first record of more than `maxBytes`. */
export async function findLongRecord(
  records: AsyncIterable<RecordPosition>,
  maxBytes: number,
): Promise<number | undefined> {
  for await (const { line, bytes } of records) if (bytes > maxBytes) return line;
  return undefined;
}

export interface CsvHeader {
  readonly names: readonly string[];
  readonly delimiter: Separator;
  /** Records before the first row: the header, and possibly Excel's line `sep=;` before it. */
  readonly records: 1 | 2;
}

/** Reads the header of a CSV file. Undefined if it is missing, is not UTF-8, or has empty or repeated names. */
export async function findHeader(chunks: AsyncIterable<Uint8Array>): Promise<CsvHeader | undefined> {
  let start = Buffer.alloc(0);
  for await (const chunk of chunks) {
    start = Buffer.concat([start, chunk]);
    if (start.length >= maxHeaderBytes) break;
  }
  const [line = '', separator] = /^(?:\xef\xbb\xbf)?sep=([,;\t|])\r?\n/.exec(start.toString('latin1', 0, 16)) ?? [];
  const end = findRecordEnd(start.subarray(line.length));
  if (end === -1 && start.length >= maxHeaderBytes) return undefined;
  const text = toText(start.subarray(line.length, end === -1 ? start.length : line.length + end));
  const [best] = separators
    .filter((delimiter) => separator === undefined || separator === delimiter)
    .map((delimiter) => ({ delimiter, names: parseCells(text, delimiter) ?? [] }))
    .toSorted((a, b) => b.names.length - a.names.length);
  if (best === undefined || best.names.includes('') || new Set(best.names).size !== best.names.length) return undefined;
  return best.names.length === 0 ? undefined : { ...best, records: separator === undefined ? 1 : 2 };
}

function findRecordEnd(bytes: Uint8Array): number {
  let isQuoted = false;
  return bytes.findIndex((byte) => {
    if (byte === quote) isQuoted = !isQuoted;
    return byte === lineFeed && !isQuoted;
  });
}

/** Decodes a record without its end; empty if it is not UTF-8. */
function toText(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes).replace(/\r$/, '');
  } catch {
    return '';
  }
}

export interface RowPositions {
  /** Numbers among the rows that the engine has accepted, from 1, ascending. */
  readonly rows: readonly number[];
  /** Offsets of rejected records, ascending; slightly before the record after CRLF or blank lines. */
  readonly rejected: readonly number[];
}

/** Finds the lines of rows by reading the file. `headers`: number of leading records to skip. */
export async function findLines(
  records: AsyncIterable<RecordPosition>,
  { rows, rejected }: RowPositions,
  { headers, skipsBlank }: { readonly headers: number; readonly skipsBlank: boolean },
): Promise<{ readonly rows: ReadonlyMap<number, number>; readonly rejected: ReadonlyMap<number, number> }> {
  const found = { rows: new Map<number, number>(), rejected: new Map<number, number>() };
  const wanted = new Set(rows);
  let headersLeft = headers;
  let row = 0;
  let next = 0;
  for await (const { line, offset, isBlank } of records) {
    if (isBlank && skipsBlank) continue;
    if (headersLeft > 0) {
      headersLeft -= 1;
      continue;
    }
    const refused = rejected[next];
    if (refused !== undefined && refused <= offset) {
      found.rejected.set(refused, line);
      next += 1;
    } else {
      row += 1;
      if (wanted.has(row)) found.rows.set(row, line);
    }
    if (found.rows.size === wanted.size && next === rejected.length) break;
  }
  return found;
}
