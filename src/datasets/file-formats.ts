/**
 * The file formats of exports. Service, command line, client, console and documents follow these declarations: a new
 * format is a new member of `fileFormats`.
 */

export const compressions = ['none', 'gzip', 'zstd'] as const;
export type Compression = (typeof compressions)[number];

/** File name endings, after that of the format. */
const packedEndings = { none: '', gzip: '.gz', zstd: '.zst' } as const;
const packedTypes = { gzip: 'application/gzip', zstd: 'application/zstd' } as const;

interface Shared {
  readonly title: string;
  /** Description of the content, for the table of docs/api.md. */
  readonly about: string;
  /** File name endings with their full stop; exports use the first. */
  readonly endings: readonly [string, ...string[]];
  readonly contentType: string;
  /** `text`: cells are texts, lists array literals. `typed`: cells have the selector's type. */
  readonly cells: 'text' | 'typed';
  readonly hasHeader: boolean;
}

/** A text of rows: it can be compressed entirely, and split between rows. */
export interface TextFormat extends Shared {
  readonly kind: 'text';
  /** Follows FORMAT in COPY, without a compression. */
  readonly copyOptions: string;
  /** The same for appended rows. */
  readonly appendOptions: string;
  readonly emptyText: (columns: readonly string[]) => string;
  /** Returns the ends (exclusive) of the rows in a buffer that begins with a row; the last may end beyond it. */
  readonly findRowEnds: (buffer: Buffer) => number[];
}

export interface BinaryFormat extends Shared {
  readonly kind: 'binary';
  readonly copyOptions: (compression: Compression) => string;
  /** Further options for rows that need too much memory. */
  readonly narrowOptions: string;
  readonly usualCompression: Compression;
}

/** A workbook, made of the rows of CSV. */
export interface SheetFormat extends Shared {
  readonly kind: 'sheet';
  /** Rows without the header. */
  readonly maxRows: number;
  /** Compression of the complete file. */
  readonly usualCompression: 'none';
}

const newline = 0x0a;
const quote = 0x22;

/** Finds line breaks outside of quotes by native search. */
function findQuotedRowEnds(buffer: Buffer): number[] {
  const ends: number[] = [];
  let isQuoted = false;
  let quoteAt = buffer.indexOf(quote);
  for (let at = buffer.indexOf(newline); at !== -1; at = buffer.indexOf(newline, at + 1)) {
    for (; quoteAt !== -1 && quoteAt < at; quoteAt = buffer.indexOf(quote, quoteAt + 1)) isQuoted = !isQuoted;
    if (!isQuoted) ends.push(at + 1);
  }
  return ends;
}

function findLineEnds(buffer: Buffer): number[] {
  const ends: number[] = [];
  for (let at = buffer.indexOf(newline); at !== -1; at = buffer.indexOf(newline, at + 1)) ends.push(at + 1);
  return ends;
}

/** Forms of CSV for spreadsheets, with a byte order mark; `excel-semicolon` also has semicolons and decimal commas. */
export const csvDialects = ['excel', 'excel-semicolon'] as const;
export type CsvDialect = (typeof csvDialects)[number];

export const byteOrderMark = '\uFEFF';

const delimiterOf = (dialect: CsvDialect | undefined): string => (dialect === 'excel-semicolon' ? ';' : ',');

function csvOptions(hasHeader: boolean, dialect?: CsvDialect): string {
  return `csv, HEADER ${hasHeader}, DELIMITER '${delimiterOf(dialect)}', QUOTE '"', ESCAPE '"'`;
}

/** Returns the members of CSV's declaration that a dialect changes. The header of its query begins with the mark. */
export function csvOf(dialect: CsvDialect): Pick<TextFormat, 'copyOptions' | 'appendOptions' | 'emptyText'> {
  return {
    copyOptions: csvOptions(true, dialect),
    appendOptions: csvOptions(false, dialect),
    emptyText: (columns) => `${byteOrderMark}${columns.join(delimiterOf(dialect))}\n`,
  };
}

export const fileFormats = {
  /** CSV with a header row, RFC 4180 quoting and LF (docs/api.md#files). */
  csv: {
    kind: 'text',
    title: 'CSV',
    about:
      'UTF-8, comma separated, LF line ends, a header row in every part. Values are unchanged, even if they begin with `=`.',
    endings: ['.csv'],
    contentType: 'text/csv; charset=utf-8',
    cells: 'text',
    hasHeader: true,
    copyOptions: csvOptions(true),
    appendOptions: csvOptions(false),
    // Selector names need no quotes.
    emptyText: (columns) => `${columns.join(',')}\n`,
    findRowEnds: findQuotedRowEnds,
  },
  jsonl: {
    kind: 'text',
    title: 'JSON lines',
    about:
      'One object per row with typed values; `params.name` and `params.value` are lists, empty cells `null`. `hwid` may exceed 2^53.',
    endings: ['.jsonl', '.ndjson'],
    contentType: 'application/jsonl; charset=utf-8',
    cells: 'typed',
    hasHeader: false,
    copyOptions: 'json',
    appendOptions: 'json',
    emptyText: () => '',
    findRowEnds: findLineEnds,
  },
  parquet: {
    kind: 'binary',
    title: 'Parquet',
    about: 'One file with the types of `jsonl`, written by one thread: the same rows give the same bytes.',
    endings: ['.parquet'],
    contentType: 'application/vnd.apache.parquet',
    cells: 'typed',
    hasHeader: false,
    copyOptions: (compression) => `parquet, COMPRESSION ${compression === 'none' ? 'uncompressed' : compression}`,
    // A sixth of the usual rows in a group, of which the engine holds several.
    narrowOptions: 'ROW_GROUP_SIZE 20480',
    usualCompression: 'zstd',
  },
  xlsx: {
    kind: 'sheet',
    title: 'Excel',
    about:
      'One workbook of at most 1,000,000 rows. Texts are never formulas; numbers over 15 digits are texts; times are date cells.',
    endings: ['.xlsx'],
    contentType: 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
    cells: 'text',
    hasHeader: true,
    maxRows: 1_000_000,
    usualCompression: 'none',
  },
} as const satisfies Readonly<Record<string, TextFormat | BinaryFormat | SheetFormat>>;

export type FileFormat = keyof typeof fileFormats;

export const defaultFormat: FileFormat = 'csv';

export function isFileFormat(name: string): name is FileFormat {
  return Object.hasOwn(fileFormats, name);
}

export const formatNames: readonly FileFormat[] = Object.keys(fileFormats).filter(isFileFormat);

export function getFormat(name: FileFormat): TextFormat | BinaryFormat | SheetFormat {
  return fileFormats[name];
}

export interface FileForm {
  readonly format: FileFormat;
  readonly compression: Compression;
}

/** Describes the compression of a file of this format if the request names none. */
export function describeUsualCompression(name: FileFormat): string {
  const format = getFormat(name);
  return format.kind === 'text' ? 'gzip when large' : format.usualCompression;
}

/** Returns the ending of a file's name; that of a binary format does not show its compression. */
export function endingOf({ format, compression }: FileForm): string {
  const { kind, endings } = getFormat(format);
  return `${endings[0]}${kind === 'text' ? packedEndings[compression] : ''}`;
}

/** Reads the form of a file from its name; undefined for other endings. */
export function findForm(name: string): FileForm | undefined {
  const lower = name.toLowerCase();
  const compression = compressions.find((each) => each !== 'none' && lower.endsWith(packedEndings[each])) ?? 'none';
  const plain = lower.slice(0, lower.length - packedEndings[compression].length);
  const format = formatNames.find((each) => getFormat(each).endings.some((ending) => plain.endsWith(ending)));
  return format && { format, compression };
}

export function contentTypeOf(name: string): string {
  const form = findForm(name);
  if (form === undefined) return 'application/octet-stream';
  return form.compression === 'none' ? getFormat(form.format).contentType : packedTypes[form.compression];
}
