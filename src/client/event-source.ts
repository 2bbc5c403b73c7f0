import { parseCells } from '../runtime/csv.ts';
import { isUtf8 } from 'node:buffer';
import { readPlain } from '../runtime/files/input-file.ts';
import { createIsField, toEvent, readHeader, type CsvColumns, type CsvHeaderResult } from './csv-event.ts';
import { createMapping, type EventMapping, type MappedEvent } from './event-mapping.ts';
import { isRecord } from '../runtime/files/checksummed-json.ts';

/** A line of an input, or in CSV the lines that quotes join. */
interface InputRecord {
  /** Of its first line, from 1. */
  readonly line: number;
  /** Start of the next record. */
  readonly next: InputPosition;
  /** Without the line break; only the first bytes if `isCut`. */
  readonly bytes: Buffer;
  /** Whether it is longer than any event. */
  readonly isCut: boolean;
}

/** A position in the unpacked input: the next line and the offset of its first byte. */
export interface InputPosition {
  readonly line: number;
  readonly offset: number;
}

const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const quote = 0x22;
/** Larger than the body limit. */
const maxRecordBytes = 64 * 1024;

function countQuotes(bytes: Uint8Array): number {
  let count = 0;
  for (let at = bytes.indexOf(quote); at !== -1; at = bytes.indexOf(quote, at + 1)) count += 1;
  return count;
}

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

function end({ line, pieces, isCut }: Begun, next: InputPosition): InputRecord {
  const joined = pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces);
  const last = joined.at(-1) === lineFeed ? joined.length - 1 : joined.length;
  return {
    line,
    next,
    bytes: joined.subarray(0, joined[last - 1] === carriageReturn ? last - 1 : last),
    isCut,
  };
}

/**
 * Reads the records from a position, blank ones too. With `hasQuotes`, a quoted line break does not end a record.
 * Memory: one piece and one record.
 */
async function* readRecords(
  pieces: AsyncIterable<Uint8Array>,
  from: InputPosition,
  hasQuotes: boolean,
): AsyncGenerator<InputRecord, void, void> {
  let { line, offset } = from;
  let partialRecord = begin(line);
  // Whether the last line ends with a break.
  let isBroken = true;
  for await (const piece of pieces) {
    const buffer = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
    let at = 0;
    while (at < buffer.length) {
      const feed = buffer.indexOf(lineFeed, at);
      isBroken = feed !== -1;
      const stop = feed === -1 ? buffer.length : feed + 1;
      take(partialRecord, buffer.subarray(at, stop), hasQuotes);
      offset += stop - at;
      at = stop;
      if (feed === -1) break;
      line += 1;
      if (partialRecord.isQuoted) continue;
      yield end(partialRecord, { line, offset });
      partialRecord = begin(line);
    }
  }
  if (partialRecord.bytes > 0) yield end(partialRecord, { line: isBroken ? line : line + 1, offset });
}

export interface SourceEvent {
  readonly line: number;
  readonly json: string;
}

/** A rejected event, or a line that is not an event. */
export interface RejectedEvent {
  readonly line: number;
  /** Path of the wrong field, without its first slash. */
  readonly field?: string;
  readonly reason: string;
  readonly hint?: string;
  /** The event as it was sent, with exact numbers. */
  readonly json?: string;
  /** The start of a line that is not JSON. */
  readonly text?: string;
}

export interface SourceItem {
  readonly next: InputPosition;
  readonly event?: SourceEvent;
  readonly rejected?: RejectedEvent;
}

export type SourceFormat = 'ndjson' | 'csv';

/** A file, plain or gzip, or standard input, which can be read once. */
export interface EventSource {
  /** Reads from the start or from a `next` that it returned. Errors: `usage`, those of the system. */
  items(from: InputPosition): AsyncGenerator<SourceItem, void, void>;
}

export const inputStart: InputPosition = { line: 1, offset: 0 };

/** Maximum bytes of a body (docs/api.md#limits); a batch has two brackets around its events. */
export const maxBodyBytes = 10_240;
const maxEventBytes = maxBodyBytes - 2;
const tooLarge = `is larger than the maximum of ${maxEventBytes} bytes per event`;
const shownText = 1000;

const reject = ({ line, next, bytes }: InputRecord, reason: string, hint?: string): SourceItem => ({
  next,
  rejected: {
    line,
    reason,
    ...(hint === undefined ? {} : { hint }),
    text: bytes.subarray(0, shownText).toString('utf8'),
  },
});

function toItem(record: InputRecord, mapped: MappedEvent): SourceItem {
  if ('reason' in mapped) return reject(record, mapped.reason);
  return Buffer.byteLength(mapped.json) > maxEventBytes
    ? reject(record, tooLarge)
    : { next: record.next, event: { line: record.line, json: mapped.json } };
}

const oneOnEach = 'Write exactly one event per line.';

/** Reads a line of JSON; numbers stay exact. */
function readJson(record: InputRecord, mapping: EventMapping): SourceItem {
  const text = record.bytes.toString('utf8').trim();
  if (text === '') return { next: record.next };
  try {
    const value: unknown = JSON.parse(text);
    if (isRecord(value)) return toItem(record, mapping.mapJson(text, value));
  } catch {
    return reject(record, 'is not JSON', oneOnEach);
  }
  return reject(record, 'is not a JSON object', oneOnEach);
}

function readCsv(record: InputRecord, { separator, fields }: CsvColumns, mapping: EventMapping): SourceItem {
  const text = record.bytes.toString('utf8');
  if (text.trim() === '') return { next: record.next };
  const cells = parseCells(text, separator);
  if (cells === undefined) return reject(record, 'is not a CSV record: unexpected quote');
  if (cells.length !== fields.length)
    return reject(record, `has ${cells.length} cells, but the header has ${fields.length}`);
  return toItem(record, mapping.render(toEvent(fields, cells)));
}

function readItem(record: InputRecord, columns: CsvColumns | undefined, mapping: EventMapping): SourceItem {
  const last = record.next.line - 1;
  if (record.isCut && last > record.line)
    return reject(record, tooLarge, `Check for an unclosed quote: the record extends to line ${last}.`);
  if (record.isCut) return reject(record, tooLarge);
  if (!isUtf8(record.bytes)) return reject(record, 'is not UTF-8');
  return columns === undefined ? readJson(record, mapping) : readCsv(record, columns, mapping);
}

/** Skips the bytes before an offset. */
async function* skip(pieces: AsyncIterable<Uint8Array>, bytes: number): AsyncGenerator<Uint8Array> {
  let left = bytes;
  for await (const piece of pieces) {
    if (left < piece.length) yield piece.subarray(left);
    left = Math.max(0, left - piece.length);
  }
}

interface SourceReading extends CsvHeaderResult {
  readonly format: SourceFormat;
  readonly timeFormat: string;
}

/** `from` returns the bytes from an offset on. */
function createSource(
  name: string,
  reading: SourceReading,
  from: (offset: number) => AsyncIterable<Uint8Array>,
): EventSource {
  const { format } = reading;
  const mapping = createMapping({ ...reading, isField: createIsField(reading.event) });
  async function findColumns(inputPosition: InputPosition): Promise<CsvColumns | undefined> {
    if (format === 'ndjson' || inputPosition.offset === 0) return undefined;
    for await (const { bytes } of readRecords(from(0), inputStart, true)) return readHeader(name, reading, bytes);
    return readHeader(name, reading, undefined);
  }

  return {
    async *items(inputPosition) {
      let columns = await findColumns(inputPosition);
      for await (const record of readRecords(from(inputPosition.offset), inputPosition, format === 'csv')) {
        if (format === 'ndjson' || columns !== undefined) yield readItem(record, columns, mapping);
        else {
          columns = readHeader(name, reading, record.bytes);
          yield { next: record.next };
        }
      }
      if (format === 'csv' && columns === undefined) readHeader(name, reading, undefined);
    },
  };
}

export function isPacked(file: string): boolean {
  return /\.gz$/i.test(file);
}

/** Returns the format by a file's name, ignoring `.gz`. */
export function formatOf(name: string): SourceFormat {
  return /\.[ct]sv(\.gz)?$/i.test(name) ? 'csv' : 'ndjson';
}

/** Opens a file; gzip is unpacked from the start and skipped to the position. */
export function createFileSource(file: string, reading: SourceReading): EventSource {
  const from = (offset: number): AsyncIterable<Uint8Array> =>
    isPacked(file) ? skip(readPlain(file, true), offset) : readPlain(file, false, offset);
  return createSource(file, reading, from);
}

export function createInputSource(input: AsyncIterable<Uint8Array>, reading: SourceReading): EventSource {
  return createSource('standard input', reading, () => input);
}
