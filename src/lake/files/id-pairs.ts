import { randomUUID } from 'node:crypto';
import { open, readFile, stat, type FileHandle } from 'node:fs/promises';
import { crc32 } from 'node:zlib';
import { AppError, isSystemError } from '../../runtime/errors.ts';
import { moveFile, removeFile } from '../../runtime/files/durable-file.ts';

/**
 * A file of pairs of numbers below 2^48, sorted by the first, the key, in which a key is found with a read or two:
 * keys are parts of hashes, so that how large one is says where it lies.
 *
 * Pages of 4096 bytes: 341 pairs of 12 bytes, big-endian, and the CRC-32 of those. The last page ends with at least one
 * filler, a pair of all ones, so that a file that was cut off is known. It is a cache: written whole, not fsynced; what
 * a crash has made of it shows in the sums.
 */

const pairBytes = 12;
const pairsOfPage = 341;
const pageBytes = 4096;
const sumAt = pairsOfPage * pairBytes;
const keyBytes = 6;
/** No key is as large as this: it is the filler's. */
const keyRange = 2 ** 48;
const filler = keyRange - 1;
/** Guesses by the size of the key; after them the rest is halved. */
const maxGuesses = 4;
const pagesAtOnce = 256;
/** What ends so is not whole yet. */
const temporarySuffix = '.tmp';
/** It is written to all the time; older than this, milliseconds, it is what a killed process has left. */
const leftAfterMs = 3_600_000;

/** Pairs in columns, sorted by key: the upper 16 and the lower 32 bits of the key, and those of the value. */
export type PairColumns = readonly Uint32Array[];

/** Collects pairs into pages. */
function createPages() {
  let pages = Buffer.alloc(pagesAtOnce * pageBytes, 0xff);
  let pairs = 0;
  const place = (): number => Math.floor(pairs / pairsOfPage) * pageBytes + (pairs % pairsOfPage) * pairBytes;
  return {
    isFull: () => pairs === pagesAtOnce * pairsOfPage,
    add([keyHighs, keyLows, valueHighs, valueLows]: PairColumns, index: number): void {
      const at = place();
      pages.writeUInt16BE(keyHighs?.[index] ?? 0, at);
      pages.writeUInt32BE(keyLows?.[index] ?? 0, at + 2);
      pages.writeUInt16BE(valueHighs?.[index] ?? 0, at + keyBytes);
      pages.writeUInt32BE(valueLows?.[index] ?? 0, at + keyBytes + 2);
      pairs += 1;
    },
    /** Takes what is there; `isLast`: with a filler behind it. */
    take(isLast: boolean): Buffer {
      const count = Math.ceil((pairs + (isLast ? 1 : 0)) / pairsOfPage);
      const taken = pages.subarray(0, count * pageBytes);
      for (let at = 0; at < taken.length; at += pageBytes)
        taken.writeUInt32BE(crc32(taken.subarray(at, at + sumAt)), at + sumAt);
      pages = Buffer.alloc(pagesAtOnce * pageBytes, 0xff);
      pairs = 0;
      return taken;
    },
  };
}

/** Writes a file of pairs, whole or not at all; `chunks` in growing order of their keys. */
export async function writePairs(
  file: string,
  chunks: AsyncIterable<PairColumns> | Iterable<PairColumns>,
): Promise<void> {
  const temporary = `${file}.${randomUUID()}${temporarySuffix}`;
  const handle = await open(temporary, 'w', 0o600);
  try {
    const pages = createPages();
    for await (const chunk of chunks)
      for (let index = 0; index < (chunk[0]?.length ?? 0); index += 1) {
        if (pages.isFull()) await handle.appendFile(pages.take(false));
        pages.add(chunk, index);
      }
    if (pages.isFull()) await handle.appendFile(pages.take(false));
    await handle.appendFile(pages.take(true));
  } catch (error) {
    await removeFile(temporary);
    throw error;
  } finally {
    await handle.close();
  }
  await moveFile(temporary, file);
}

/** Says whether a file of that folder is one that a process is about to write. */
export async function isBeingWritten(file: string): Promise<boolean> {
  if (!file.endsWith(temporarySuffix)) return false;
  try {
    return Date.now() - (await stat(file)).mtimeMs < leftAfterMs;
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return false;
    throw error;
  }
}

const damaged = (file: string): AppError =>
  new AppError('file_damaged', `${file} is not what was written`, {
    hint: 'Remove it: it is made anew from the lake.',
  });

const keyAt = (page: Buffer, index: number): number => page.readUIntBE(index * pairBytes, keyBytes);
const firstKey = (page: Buffer): number => keyAt(page, 0);
const lastKey = (page: Buffer): number => keyAt(page, pairsOfPage - 1);

async function readPage(handle: FileHandle, file: string, page: number): Promise<Buffer> {
  const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(pageBytes), 0, pageBytes, page * pageBytes);
  if (bytesRead !== pageBytes || buffer.readUInt32BE(sumAt) !== crc32(buffer.subarray(0, sumAt))) throw damaged(file);
  return buffer;
}

/** Adds the values of keys in a page. */
function addValues(page: Buffer, isSought: (key: number) => boolean, values: number[]): void {
  for (let index = 0; index < pairsOfPage; index += 1)
    if (isSought(keyAt(page, index))) values.push(page.readUIntBE(index * pairBytes + keyBytes, keyBytes));
}

/** A page that may have a key, and its number; undefined: none has it. */
async function findPage(
  read: (page: number) => Promise<Buffer>,
  pages: number,
  key: number,
): Promise<readonly [number, Buffer] | undefined> {
  let [low, high] = [0, pages - 1];
  let guess = Math.floor((key / keyRange) * pages);
  for (let guesses = 1; low <= high; guesses += 1) {
    const at = Math.min(Math.max(guess, low), high);
    const page = await read(at);
    const first = firstKey(page);
    if (key < first) high = at - 1;
    else if (key > lastKey(page)) low = at + 1;
    else return [at, page];
    guess = guesses < maxGuesses ? at + Math.floor(((key - first) / keyRange) * pages) : (low + high) >>> 1;
  }
  return undefined;
}

/** Adds the values of a key. */
async function addOfKey(
  read: (page: number) => Promise<Buffer>,
  pages: number,
  key: number,
  values: number[],
): Promise<void> {
  const found = await findPage(read, pages, key);
  if (found === undefined) return;
  const isSought = (other: number): boolean => other === key;
  const [at, page] = found;
  addValues(page, isSought, values);
  // A key with many values may reach over the ends of its page.
  for (let before = at, first = page; before > 0 && firstKey(first) === key;) {
    before -= 1;
    first = await read(before);
    addValues(first, isSought, values);
  }
  for (let after = at, last = page; after < pages - 1 && lastKey(last) === key;) {
    after += 1;
    last = await read(after);
    addValues(last, isSought, values);
  }
}

/** The values of some keys, in no order. Errors: `file_damaged`, ENOENT. */
export async function findPairs(file: string, keys: readonly number[]): Promise<number[]> {
  const handle = await open(file, 'r');
  try {
    const { size } = await handle.stat();
    const pages = size / pageBytes;
    if (pages < 1 || !Number.isInteger(pages)) throw damaged(file);
    const read = (page: number): Promise<Buffer> => readPage(handle, file, page);
    if (lastKey(await read(pages - 1)) !== filler) throw damaged(file);
    const values: number[] = [];
    const sought = new Set(keys);
    // Of many keys each would read as much as there is.
    if (sought.size > pages)
      for (let page = 0; page < pages; page += 1) addValues(await read(page), (key) => sought.has(key), values);
    else for (const key of sought) await addOfKey(read, pages, key, values);
    return values;
  } finally {
    await handle.close();
  }
}

/** Reads a file of pairs whole, sorted by key. Errors: `file_damaged`, ENOENT. */
export async function readAllPairs(file: string): Promise<PairColumns> {
  const bytes = await readFile(file);
  const pages = bytes.length / pageBytes;
  if (pages < 1 || !Number.isInteger(pages)) throw damaged(file);
  const createColumn = (): Uint32Array => new Uint32Array(pages * pairsOfPage);
  const [keyHighs, keyLows, valueHighs, valueLows] = [createColumn(), createColumn(), createColumn(), createColumn()];
  let pairs = 0;
  for (let at = 0; at < bytes.length; at += pageBytes) {
    const page = bytes.subarray(at, at + pageBytes);
    if (page.readUInt32BE(sumAt) !== crc32(page.subarray(0, sumAt))) throw damaged(file);
    for (let pair = 0; pair < sumAt && page.readUIntBE(pair, keyBytes) !== filler; pair += pairBytes) {
      keyHighs[pairs] = page.readUInt16BE(pair);
      keyLows[pairs] = page.readUInt32BE(pair + 2);
      valueHighs[pairs] = page.readUInt16BE(pair + keyBytes);
      valueLows[pairs] = page.readUInt32BE(pair + keyBytes + 2);
      pairs += 1;
    }
  }
  if (lastKey(bytes.subarray(-pageBytes)) !== filler) throw damaged(file);
  return [keyHighs, keyLows, valueHighs, valueLows].map((column) => column.subarray(0, pairs));
}

/** Puts files of pairs that are in memory together, sorted by key. */
export function mergePairs(all: readonly PairColumns[]): PairColumns {
  const columns = [0, 1, 2, 3].map((column) => {
    const parts = all.map((one) => one[column] ?? new Uint32Array());
    const joined = new Uint32Array(parts.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const part of parts) {
      joined.set(part, at);
      at += part.length;
    }
    return joined;
  });
  const [highs = new Uint32Array(), lows = new Uint32Array()] = columns;
  const order = Uint32Array.from(highs, (_, index) => index).toSorted(
    (a, b) => (highs[a] ?? 0) - (highs[b] ?? 0) || (lows[a] ?? 0) - (lows[b] ?? 0),
  );
  return columns.map((column) => Uint32Array.from(order, (index) => column[index] ?? 0));
}
