/**
 * The records of a CSV text, as far as the engine does not say where they stand: the header, and the lines on which
 * records begin. Comma, quotes doubled within quotes, lines ended by LF or CRLF. Pure but for the reading of chunks.
 */

const quote = 0x22;
const comma = 0x2c;
const space = 0x20;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const maxHeaderBytes = 1024 * 1024;

/** A record's place. Records without a byte are none to the engine, where the file has several columns. */
interface RecordPlace {
  readonly line: number;
  /** Offset of its first byte. */
  readonly offset: number;
  readonly isBlank: boolean;
}

/** Where in a cell a byte is: `closed` is behind a quotation, which a further quote goes on with. */
type CellState = 'start' | 'plain' | 'quoted' | 'closed';

/** The state behind a byte. As to the engine, a quote within a plain cell is a sign as others are. */
function stateBehind(state: CellState, byte: number): CellState {
  if (state === 'quoted') return byte === quote ? 'closed' : 'quoted';
  if (byte === comma || byte === lineFeed) return 'start';
  if (byte === space && state !== 'plain') return state;
  return byte === quote && state !== 'plain' ? 'quoted' : 'plain';
}

/** Walks over the places of all records, the header among them; without quotes each line is one. */
export async function* walkRecords(chunks: AsyncIterable<Uint8Array>, hasQuotes: boolean): AsyncGenerator<RecordPlace> {
  let [line, recordLine, offset, recordOffset] = [1, 1, 0, 0];
  let [isBlank, any] = [true, false];
  let state: CellState = 'start';
  for await (const chunk of chunks) {
    for (const byte of chunk) {
      any = true;
      offset += 1;
      if (hasQuotes) state = stateBehind(state, byte);
      if (byte === lineFeed) {
        line += 1;
        if (state !== 'quoted') {
          yield { line: recordLine, offset: recordOffset, isBlank };
          [recordLine, recordOffset, isBlank, any] = [line, offset, true, false];
        }
        continue;
      }
      if (byte !== carriageReturn) isBlank = false;
    }
  }
  if (any) yield { line: recordLine, offset: recordOffset, isBlank };
}

/** Parses the cells of one record of text. */
function parseRecord(text: string): string[] {
  const cells: string[] = [];
  const cell = /(?:"((?:[^"]|"")*)"|([^,"]*))(,|$)/gy;
  for (let match = cell.exec(text); match !== null; match = cell.exec(text)) {
    cells.push(match[1]?.replaceAll('""', '"') ?? match[2] ?? '');
    if (match[3] === '') return cells;
  }
  return [];
}

/**
 * Reads the names of a CSV file's header, its first record. Undefined when there is none, it is no record of UTF-8 text,
 * or has a name that is empty or there twice in any case of letters.
 */
export async function findHeader(chunks: AsyncIterable<Uint8Array>): Promise<readonly string[] | undefined> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    parts.push(chunk);
    bytes += chunk.length;
    const start = Buffer.concat(parts);
    const end = findRecordEnd(start);
    if (end !== -1 || bytes > maxHeaderBytes) return end === -1 ? undefined : toNames(start.subarray(0, end));
  }
  return toNames(Buffer.concat(parts));
}

function findRecordEnd(bytes: Uint8Array): number {
  let isQuoted = false;
  return bytes.findIndex((byte) => {
    if (byte === quote) isQuoted = !isQuoted;
    return byte === lineFeed && !isQuoted;
  });
}

function toNames(bytes: Uint8Array): readonly string[] | undefined {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
  const names = parseRecord(text.replace(/\r$/, ''));
  const isOdd = names.length === 0 || names.includes('') || new Set(names).size !== names.length;
  return isOdd ? undefined : names;
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
 * Finds the lines on which rows begin. `header`: the first record is none; `skipsBlank`: nor are blank ones. Time: that
 * of reading the file.
 */
export async function findLines(
  records: AsyncIterable<RecordPlace>,
  { rows, rejected }: RowPlaces,
  { header, skipsBlank }: { readonly header: boolean; readonly skipsBlank: boolean },
): Promise<{ readonly rows: ReadonlyMap<number, number>; readonly rejected: ReadonlyMap<number, number> }> {
  const found = { rows: new Map<number, number>(), rejected: new Map<number, number>() };
  const wanted = new Set(rows);
  let isHeader = header;
  let row = 0;
  let next = 0;
  for await (const { line, offset, isBlank } of records) {
    if (isBlank && skipsBlank) continue;
    if (isHeader) {
      isHeader = false;
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
