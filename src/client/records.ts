/** A record of an input: a line, or in CSV the lines that quotes hold together. */
export interface InputRecord {
  /** Number of its first line, from 1. */
  readonly line: number;
  /** Where the next record begins: its line, and its first byte. */
  readonly next: Place;
  /** Without its line break; the first bytes alone where `isCut`. */
  readonly bytes: Buffer;
  /** It is longer than any event may be, and was not kept. */
  readonly isCut: boolean;
}

/** A place in an input, unpacked: the next line to read, and the offset of its first byte. */
export interface Place {
  readonly line: number;
  readonly offset: number;
}

const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const quote = 0x22;
/** More than a body may have, and as much as is held of one record. */
const maxRecordBytes = 64 * 1024;

function countQuotes(bytes: Uint8Array): number {
  let count = 0;
  for (let at = bytes.indexOf(quote); at !== -1; at = bytes.indexOf(quote, at + 1)) count += 1;
  return count;
}

/** What has been read of a record. */
interface Begun {
  readonly line: number;
  pieces: Buffer[];
  bytes: number;
  isCut: boolean;
  isQuoted: boolean;
}

const begin = (line: number): Begun => ({ line, pieces: [], bytes: 0, isCut: false, isQuoted: false });

function take(begun: Begun, piece: Buffer, hasQuotes: boolean): void {
  if (hasQuotes && countQuotes(piece) % 2 === 1) begun.isQuoted = !begun.isQuoted;
  const room = maxRecordBytes - begun.bytes;
  if (piece.length > room) begun.isCut = true;
  if (room > 0) begun.pieces.push(piece.subarray(0, room));
  begun.bytes += piece.length;
}

function end({ line, pieces, isCut }: Begun, next: Place): InputRecord {
  const whole = pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces);
  const last = whole.at(-1) === lineFeed ? whole.length - 1 : whole.length;
  return {
    line,
    next,
    bytes: whole.subarray(0, whole[last - 1] === carriageReturn ? last - 1 : last),
    isCut,
  };
}

/**
 * Reads the records of bytes that begin at a place, blank ones too. With `hasQuotes`, a line break within quotes ends
 * none. Memory: one piece and one record.
 */
export async function* readRecords(
  pieces: AsyncIterable<Uint8Array>,
  from: Place,
  hasQuotes: boolean,
): AsyncGenerator<InputRecord, void, void> {
  let { line, offset } = from;
  let begun = begin(line);
  // The last line may have no break; one within quotes may have.
  let isBroken = true;
  for await (const piece of pieces) {
    const buffer = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
    let at = 0;
    while (at < buffer.length) {
      const feed = buffer.indexOf(lineFeed, at);
      isBroken = feed !== -1;
      const stop = feed === -1 ? buffer.length : feed + 1;
      take(begun, buffer.subarray(at, stop), hasQuotes);
      offset += stop - at;
      at = stop;
      if (feed === -1) break;
      line += 1;
      if (begun.isQuoted) continue;
      yield end(begun, { line, offset });
      begun = begin(line);
    }
  }
  if (begun.bytes > 0) yield end(begun, { line: isBroken ? line : line + 1, offset });
}
