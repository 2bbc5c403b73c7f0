import { isAppError, isSystemError } from '../../runtime/errors.ts';
import { readPlain, readStart } from '../../runtime/files/input-file.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlList, sqlText } from '../../lake/sql/literals.ts';
import { walkRecords } from './csv-records.ts';
import type { RejectedFile } from './file-fields.ts';

export const sourceFormats = ['csv', 'ndjson', 'parquet'] as const;
export type LoadFormat = (typeof sourceFormats)[number];

/** A file to load, under a name without characters of the engine's patterns. */
export interface SourceFile {
  readonly file: string;
  readonly format: LoadFormat;
  readonly gzip: boolean;
}

export interface RecognizedFile extends SourceFile {
  readonly isArray?: boolean;
  /** True if it has no text, which the engine cannot read. */
  readonly isEmpty?: boolean;
}

/** Longest record, bytes. The engine skips longer lines without an error, or never ends. */
export const maxLineBytes = 16 * 1024 * 1024;

/** Magic numbers of other files, in hex. */
const otherFiles: readonly (readonly [string, string])[] = [
  ['fffe', 'UTF-16'],
  ['feff', 'UTF-16'],
  ['504b0304', 'an Excel workbook or a ZIP archive'],
  ['d0cf11e0', 'an Excel workbook'],
  ['28b52ffd', 'compressed by zstd'],
  ['fd377a58', 'compressed by xz'],
  ['425a68', 'compressed by bzip2'],
];

const refused = (detail: string): RejectedFile => ({ reason: 'bad_format', detail });

export const tooLong = (line: number): RejectedFile =>
  refused(`line ${line} is longer than ${maxLineBytes} bytes: the file is damaged, or a quote is not closed.`);

export const damagedParquet = refused('the file begins like Parquet, and is truncated or damaged.');

function findOther(start: Buffer): string | undefined {
  const hex = start.toString('hex');
  const known = otherFiles.find(([prefix]) => hex.startsWith(prefix))?.[1];
  return known ?? (/^(?:00(?!00)..|(?!00)..00)/.test(hex) ? 'UTF-16' : undefined);
}

interface Text {
  readonly first: Buffer;
  /** First character that is not white space; empty if there is none. */
  readonly start: string;
  /** Offset of a line that is too long, at which reading ends. */
  readonly longLine?: number;
  readonly endsWithNul: boolean;
}

/** Reads a text to its end, or to a line that is too long; items of an array need no lines. */
async function scanText(chunks: AsyncIterable<Buffer>, signal: AbortSignal): Promise<Text> {
  let [first, start, offset, line, last] = [Buffer.alloc(0), '', 0, 0, -1];
  let longLine: number | undefined;
  for await (const chunk of chunks) {
    if (signal.aborted) break;
    if (first.length < 4) first = Buffer.concat([first, chunk.subarray(0, 4)]);
    if (start === '') start = chunk.toString('utf8').trimStart().slice(0, 1);
    last = chunk.at(-1) ?? last;
    const end = chunk.indexOf('\n');
    if (start !== '[' && offset - line + (end === -1 ? chunk.length : end) > maxLineBytes) longLine = line;
    if (longLine !== undefined) break;
    if (end !== -1) line = offset + chunk.lastIndexOf('\n') + 1;
    offset += chunk.length;
  }
  return { first, start, endsWithNul: last === 0, ...(longLine === undefined ? {} : { longLine }) };
}

async function findLine(chunks: AsyncIterable<Buffer>, at: number): Promise<number> {
  if (at > 0)
    for await (const { line, offset, bytes } of walkRecords(chunks)) if (offset + bytes === at) return line + 1;
  return 1;
}

/**
 * Recognizes a file by its first bytes, unless `format` is given. Reads a text to its end: the engine accepts truncated
 * gzip files, checks no checksum, and skips lines that are too long. Errors: those of the system.
 */
export async function recognizeFile(
  file: string,
  { format, allowsEmpty = false }: { readonly format?: LoadFormat; readonly allowsEmpty?: boolean },
  signal: AbortSignal,
): Promise<RecognizedFile | RejectedFile> {
  const start = await readStart(file, 4);
  const gzip = start[0] === 0x1f && start[1] === 0x8b;
  if (start.toString('latin1') === 'PAR1') return { file, format: 'parquet', gzip: false };
  let text: Text;
  try {
    text = await scanText(readPlain(file, gzip), signal);
  } catch (error) {
    if (!isSystemError(error, 'Z_BUF_ERROR', 'Z_DATA_ERROR')) throw error;
    return refused('the file is compressed by gzip, and is truncated or damaged.');
  }
  if (text.start === '')
    return allowsEmpty
      ? { file, format: 'ndjson', gzip, isEmpty: true }
      : { reason: 'empty_file', detail: 'the file is empty. Pass --allow-empty if it may be.' };
  const other = findOther(text.first);
  if (other !== undefined)
    return refused(`the file is ${other}: save it as CSV or JSON lines in UTF-8, or as Parquet.`);
  if (text.endsWithNul) return refused('the file ends with NUL bytes: it was not completely written.');
  if (text.longLine !== undefined) return tooLong(await findLine(readPlain(file, gzip), text.longLine));
  const isArray = text.start === '[' && format !== 'csv';
  // A header may have names in braces: {gps_adid},{idfa}.
  const isObject = text.start === '{' && !/^\{\w/.test(text.first.toString('latin1'));
  return { file, format: format ?? (isArray || isObject ? 'ndjson' : 'csv'), gzip, isArray };
}

/** Writes the items of a JSON array as lines; only line breaks within items are replaced. */
export async function splitArray(
  duckdb: Duckdb,
  { file, gzip }: SourceFile,
  target: string,
): Promise<RecognizedFile | RejectedFile> {
  const items = `read_json_objects(${sqlList([file])}, format = 'array', maximum_object_size = ${maxLineBytes}, compression = ${sqlText(gzip ? 'gzip' : 'uncompressed')})`;
  try {
    const [row] = await duckdb.rows(
      `COPY (SELECT replace(replace(json, chr(10), ' '), chr(13), ' ') FROM ${items}) TO ${sqlText(target)} (FORMAT csv, HEADER false, DELIMITER '\u0001', QUOTE '', ESCAPE '')`,
    );
    return { file: target, format: 'ndjson', gzip: false, ...(Number(row?.['Count']) === 0 ? { isEmpty: true } : {}) };
  } catch (error) {
    if (!isAppError(error, 'sql')) throw error;
    return refused('the file is a JSON array that is truncated or damaged, or has items that are too long.');
  }
}
