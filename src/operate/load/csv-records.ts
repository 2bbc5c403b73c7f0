import { parseCells, separators, type Separator } from '../../runtime/csv.ts';

/**
 * The records of a CSV text, as far as the engine does not say where they stand: the header, and the lines on which
 * records begin. Commas, semicolons, tabs or bars, quotes doubled within quotes, lines ended by LF or CRLF. Pure but for the reading of chunks.
 */

const quote = 0x22;
const space = 0x20;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const maxHeaderBytes = 1024 * 1024;

/** A record's place. Records without a byte are none to the engine, where the file has several columns. */
interface RecordPlace {
  readonly line: number;
  /** Offset of its first byte. */
  readonly offset: number;
  /** Its length, with its end. */
  readonly bytes: number;
  readonly isBlank: boolean;
}

/** Where in a cell a byte is: `closed` is behind a quotation, which a further quote goes on with. */
type CellState = 'start' | 'plain' | 'quoted' | 'closed';

/** The state behind a byte. As to the engine, a quote within a plain cell is a sign as others are. */
function stateBehind(state: CellState, byte: number, delimiter: number | undefined): CellState {
  if (state === 'quoted') return byte === quote ? 'closed' : 'quoted';
  if (byte === delimiter || byte === lineFeed) return 'start';
  if (byte === space && state !== 'plain') return state;
  return byte === quote && state !== 'plain' ? 'quoted' : 'plain';
}

/** Walks over the places of all records, the header among them; without a delimiter each line is one. */
export async function* walkRecords(chunks: AsyncIterable<Uint8Array>, delimiter?: string): AsyncGenerator<RecordPlace> {
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

/** Finds the line on which the first record of more than `maxBytes` begins. */
export async function findLongRecord(
  records: AsyncIterable<RecordPlace>,
  maxBytes: number,
): Promise<number | undefined> {
  for await (const { line, bytes } of records) if (bytes > maxBytes) return line;
  return undefined;
}

/** The header of a CSV file. */
export interface CsvHeader {
  readonly names: readonly string[];
  readonly delimiter: Separator;
  /** Records before the first row: the header, and a line `sep=;` before it, by which Excel knows the delimiter. */
  readonly records: 1 | 2;
}

/**
 * Reads a CSV file's header. Undefined when there is none, it is no record of UTF-8 text, or has a name that is empty or
 * there twice in any case of letters.
 */
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

/** A record without its end; empty where it is not UTF-8. */
function toText(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes).replace(/\r$/, '');
  } catch {
    return '';
  }
}

/** Rows in the order of a file, and those that the engine would not take, by where they begin. */
export interface RowPlaces {
  /** Numbers of rows among those that the engine has taken, from 1, ascending. */
  readonly rows: readonly number[];
  /**
   * Offsets of the records that it has not, ascending; where lines end by CRLF, or blank ones come before, the engine
   * gives one that is a little before the record.
   */
  readonly rejected: readonly number[];
}

/**
 * Finds the lines on which rows begin. `headers`: so many first records are none; `skipsBlank`: nor are blank ones. Time: that
 * of reading the file.
 */
export async function findLines(
  records: AsyncIterable<RecordPlace>,
  { rows, rejected }: RowPlaces,
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
