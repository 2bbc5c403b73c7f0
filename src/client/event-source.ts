import { parseCells } from '../runtime/csv.ts';
import { isUtf8 } from 'node:buffer';
import { readPlain } from '../runtime/files/input-file.ts';
import { toEvent, readHeader, type CsvColumns, type HeaderReading } from './csv-event.ts';
import { readRecords, type InputRecord, type Place } from './records.ts';
import { isRecord } from '../runtime/files/checked-json.ts';

/** An event of an input, as it goes over the wire. */
export interface SourceEvent {
  readonly line: number;
  readonly json: string;
}

/** An event that is not stored: where it stood, and why. */
export interface RefusedEvent {
  readonly line: number;
  /** The field that is wrong, as a path without its first slash; absent where it is none, or not known. */
  readonly field?: string;
  readonly reason: string;
  /** What was probably meant. */
  readonly hint?: string;
  /** The event as it was sent, where its line is one that JSON can hold: no number in it is rounded. */
  readonly json?: string;
  /** The beginning of the line, where it is none. */
  readonly text?: string;
}

/** What a line of an input is; a blank one is neither, and only moves on. */
export interface SourceItem {
  readonly next: Place;
  readonly event?: SourceEvent;
  readonly refused?: RefusedEvent;
}

export type SourceFormat = 'ndjson' | 'csv';

/** An input: a file, also one that gzip has packed, or standard input, which is read once. */
export interface EventSource {
  readonly format: SourceFormat;
  /** Reads it from a place on, which is its start or one that was given out as `next`. Errors: `usage`, the system's. */
  items(from: Place): AsyncGenerator<SourceItem, void, void>;
}

export const startPlace: Place = { line: 1, offset: 0 };

/** service.md 8: bytes of a body; a batch has two brackets beside its events. */
export const maxBodyBytes = 10_240;
const maxEventBytes = maxBodyBytes - 2;
const tooLarge = `is larger than the ${maxEventBytes} bytes that an event may have`;
const shownText = 1000;

const refuse = ({ line, next, bytes }: InputRecord, reason: string, hint?: string): SourceItem => ({
  next,
  refused: {
    line,
    reason,
    ...(hint === undefined ? {} : { hint }),
    text: bytes.subarray(0, shownText).toString('utf8'),
  },
});

function withinSize(record: InputRecord, json: string): SourceItem {
  return Buffer.byteLength(json) > maxEventBytes
    ? refuse(record, tooLarge)
    : { next: record.next, event: { line: record.line, json } };
}

const oneOnEach = 'Write one event, and nothing else, on each line.';

/** Reads a line of JSON. The text goes on as it stands: digits that no double holds stay as they are. */
function readJson(record: InputRecord): SourceItem {
  const text = record.bytes.toString('utf8').trim();
  if (text === '') return { next: record.next };
  try {
    if (isRecord(JSON.parse(text))) return withinSize(record, text);
  } catch {
    return refuse(record, 'is no JSON', oneOnEach);
  }
  return refuse(record, 'is no JSON object', oneOnEach);
}

function readCsv(record: InputRecord, { separator, fields }: CsvColumns): SourceItem {
  const text = record.bytes.toString('utf8');
  if (text.trim() === '') return { next: record.next };
  const cells = parseCells(text, separator);
  if (cells === undefined) return refuse(record, 'is no record of CSV: a quote stands where none may');
  if (cells.length !== fields.length)
    return refuse(record, `has ${cells.length} cells, and the header has ${fields.length}`);
  return withinSize(record, JSON.stringify(toEvent(fields, cells)));
}

function readItem(record: InputRecord, columns: CsvColumns | undefined): SourceItem {
  const last = record.next.line - 1;
  if (record.isCut && last > record.line)
    return refuse(record, tooLarge, `It takes the lines up to ${last}: look for a quote that is not closed.`);
  if (record.isCut) return refuse(record, tooLarge);
  if (!isUtf8(record.bytes)) return refuse(record, 'is no UTF-8 text');
  return columns === undefined ? readJson(record) : readCsv(record, columns);
}

/** Throws away bytes in front of a place, where an input cannot be read from there on. */
async function* skip(pieces: AsyncIterable<Uint8Array>, bytes: number): AsyncGenerator<Uint8Array> {
  let left = bytes;
  for await (const piece of pieces) {
    if (left < piece.length) yield piece.subarray(left);
    left = Math.max(0, left - piece.length);
  }
}

/** How an input is read. */
export interface SourceReading extends Omit<HeaderReading, 'name'> {
  readonly format: SourceFormat;
}

/** Where the bytes of an input come from: all of them, and for a file those behind a place. */
interface Pieces extends SourceReading {
  readonly name: string;
  readonly from: (offset: number) => AsyncIterable<Uint8Array>;
}

function createSource({ from, ...reading }: Pieces): EventSource {
  const { format } = reading;
  async function findColumns(place: Place): Promise<CsvColumns | undefined> {
    if (format === 'ndjson' || place.offset === 0) return undefined;
    for await (const { bytes } of readRecords(from(0), startPlace, true)) return readHeader(reading, bytes);
    return readHeader(reading, undefined);
  }

  return {
    format,
    async *items(place) {
      let columns = await findColumns(place);
      for await (const record of readRecords(from(place.offset), place, format === 'csv')) {
        if (format === 'ndjson' || columns !== undefined) yield readItem(record, columns);
        else {
          columns = readHeader(reading, record.bytes);
          yield { next: record.next };
        }
      }
      if (format === 'csv' && columns === undefined) readHeader(reading, undefined);
    },
  };
}

/** Says whether a file is packed by gzip, by its name. */
export function isPacked(file: string): boolean {
  return /\.gz$/i.test(file);
}

/** The format that a file's name says; `.gz` behind it does not count. */
export function formatOf(name: string): SourceFormat {
  return /\.[ct]sv(\.gz)?$/i.test(name) ? 'csv' : 'ndjson';
}

/** A file as an input; one whose name ends in `.gz` is unpacked, and read through up to the place that is asked for. */
export function createFileSource(file: string, reading: SourceReading): EventSource {
  const from = (offset: number): AsyncIterable<Uint8Array> =>
    isPacked(file) ? skip(readPlain(file, true), offset) : readPlain(file, false, offset);
  return createSource({ ...reading, name: file, from });
}

/** Standard input as an input. */
export function createInputSource(input: AsyncIterable<Uint8Array>, reading: SourceReading): EventSource {
  return createSource({ ...reading, name: 'standard input', from: () => input });
}
