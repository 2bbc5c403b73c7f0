import { isUtf8 } from 'node:buffer';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { AppError, isSystemError } from '../../runtime/errors.ts';

/** An operator's list: its bytes, plain or gzip, and its name for messages. */
export interface ListInput {
  readonly name: string;
  readonly pieces: AsyncIterable<Uint8Array>;
}

export interface BadListLine {
  readonly line: number;
  readonly reason: string;
}

/** Consecutive lines without line ends. A bad line is an empty text. */
interface LineBlock {
  readonly firstLine: number;
  readonly texts: readonly string[];
  readonly bad: readonly BadListLine[];
}

const maxLineBytes = 64 * 1024;
const lineFeed = 10;
const notUtf8 = 'is not UTF-8';
const tooLong = `is longer than ${maxLineBytes} bytes`;

/** Unpacks gzip; UTF-8 text never begins with its magic bytes. */
async function* unpack(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const iterator = pieces[Symbol.asyncIterator]();
  let head = Buffer.alloc(0);
  for (let next = await iterator.next(); next.done !== true; next = await iterator.next()) {
    head = Buffer.concat([head, next.value]);
    if (head.length > 1) break;
  }
  async function* all(): AsyncGenerator<Uint8Array> {
    yield head;
    yield* { [Symbol.asyncIterator]: () => iterator };
  }
  if (head[0] !== 0x1f || head[1] !== 0x8b) {
    yield* all();
    return;
  }
  const gunzip = createGunzip();
  const unpacked = pipeline(Readable.from(all()), gunzip);
  // The read below throws the same error; this prevents an unhandled rejection.
  unpacked.catch(() => undefined);
  yield* gunzip;
  await unpacked;
}

/** Splits bytes into lines. The last byte ends a line, or the list. */
function toBlock(bytes: Buffer, firstLine: number): LineBlock {
  const end = bytes.at(-1) === lineFeed ? bytes.length - 1 : bytes.length;
  const bad: BadListLine[] = [];
  const texts: string[] = [];
  const add = (text: string): void => void texts.push(text.endsWith('\r') ? text.slice(0, -1) : text);
  if (isUtf8(bytes)) bytes.toString('utf8', 0, end).split('\n').forEach(add);
  else
    for (let start = 0; start <= end;) {
      const next = bytes.indexOf(lineFeed, start);
      const line = bytes.subarray(start, next === -1 ? end : next);
      if (!isUtf8(line)) bad.push({ line: firstLine + texts.length, reason: notUtf8 });
      add(isUtf8(line) ? line.toString('utf8') : '');
      start += line.length + 1;
    }
  // A byte order mark.
  if (firstLine === 1 && texts[0]?.startsWith('\uFEFF') === true) texts[0] = texts[0].slice(1);
  return { firstLine, texts, bad };
}

/** Reads the lines of a list in blocks, with a few pieces in memory. Error: `usage` for an unreadable list. */
export async function* readListLines({ name, pieces }: ListInput): AsyncGenerator<LineBlock> {
  let firstLine = 1;
  let partialLine: Buffer = Buffer.alloc(0);
  let isSkipping = false;
  try {
    for await (const piece of unpack(pieces)) {
      let remaining = Buffer.from(piece.buffer, piece.byteOffset, piece.length);
      if (isSkipping) {
        const end = remaining.indexOf(lineFeed);
        if (end === -1) continue;
        remaining = remaining.subarray(end + 1);
        firstLine += 1;
        isSkipping = false;
      }
      const end = remaining.lastIndexOf(lineFeed) + 1;
      if (end > 0) {
        const block = toBlock(Buffer.concat([partialLine, remaining.subarray(0, end)]), firstLine);
        firstLine += block.texts.length;
        yield block;
        partialLine = Buffer.alloc(0);
      }
      partialLine = Buffer.concat([partialLine, remaining.subarray(end)]);
      if (partialLine.length <= maxLineBytes) continue;
      yield { firstLine, texts: [''], bad: [{ line: firstLine, reason: tooLong }] };
      partialLine = Buffer.alloc(0);
      isSkipping = true;
    }
  } catch (error) {
    if (error instanceof AppError) throw error;
    const isGzip = isSystemError(error, 'Z_DATA_ERROR', 'Z_BUF_ERROR');
    throw new AppError('usage', `cannot read ${name}${isGzip ? ': its gzip is damaged or truncated' : ''}`, {
      cause: error,
      hint: 'Pass a readable text file, plain or compressed by gzip; nothing was changed.',
    });
  }
  if (partialLine.length > 0) yield toBlock(partialLine, firstLine);
}

export interface RejectedList {
  readonly file: string;
  readonly badLines: number;
  readonly first: readonly BadListLine[];
}

const maxListedLines = 20;

export function createBadLineList() {
  const first: BadListLine[] = [];
  let count = 0;
  return {
    add(bad: BadListLine): void {
      count += 1;
      if (first.length < maxListedLines) first.push(bad);
    },
    get count() {
      return count;
    },
    toRefused: (file: string): RejectedList => ({ file, badLines: count, first }),
  };
}
