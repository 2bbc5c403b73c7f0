import { hasHeader, type Compression, type ExportSpec } from '../../jobs/export-spec.ts';
import { csvAppendOptions, csvCopyOptions, csvRows } from './csv.ts';
import type { Format, Parts } from './format.ts';
import type { TextRows } from './text-parts.ts';

const newline = 0x0a;

/** JSON lines: one object a row, a line break after each. */
const jsonRows: TextRows = {
  extension: 'jsonl',
  hasHeader: hasHeader.jsonl,
  findRowEnds(buffer) {
    const ends: number[] = [];
    for (let at = buffer.indexOf(newline); at !== -1; at = buffer.indexOf(newline, at + 1)) ends.push(at + 1);
    return ends;
  },
};

/**
 * The parts of a text. Without a wish for its compression a small result is one plain file, and a large one gzip parts.
 */
function partsOf(rows: TextRows, compression: 'none' | 'gzip' | undefined): Parts {
  return {
    rows,
    isCompressed: compression !== 'none',
    plainMaxBytes: ({ singleFileMaxBytes, partMaxBytes }) =>
      ({ none: partMaxBytes, gzip: -1, auto: singleFileMaxBytes || -1 })[compression ?? 'auto'],
  };
}

function csvFormat(compression: Compression | undefined): Format {
  if (compression === 'zstd')
    return { extension: 'csv.zst', cells: 'text', copyOptions: `${csvCopyOptions}, COMPRESSION zstd` };
  return {
    extension: 'csv',
    cells: 'text',
    copyOptions: csvCopyOptions,
    appendOptions: csvAppendOptions,
    // No selector's name has anything to quote.
    emptyFile: (columns) => `${columns.join(',')}\n`,
    parts: partsOf(csvRows, compression),
  };
}

function jsonFormat(compression: Compression | undefined): Format {
  if (compression === 'zstd') return { extension: 'jsonl.zst', cells: 'typed', copyOptions: 'json, COMPRESSION zstd' };
  return {
    extension: 'jsonl',
    cells: 'typed',
    copyOptions: 'json',
    appendOptions: 'json',
    emptyFile: () => '',
    parts: partsOf(jsonRows, compression),
  };
}

function parquetFormat(compression: Compression | undefined): Format {
  const codec = compression === 'none' ? 'uncompressed' : (compression ?? 'zstd');
  const copyOptions = `parquet, COMPRESSION ${codec}`;
  return {
    extension: 'parquet',
    cells: 'typed',
    copyOptions,
    // A sixth of the usual rows in a group, of which the engine holds several.
    narrowOptions: `${copyOptions}, ROW_GROUP_SIZE 20480`,
    byOneThread: true,
  };
}

/** The format of a request's files. */
export function chooseFormat({ format = 'csv', compression }: ExportSpec): Format {
  switch (format) {
    case 'csv':
      return csvFormat(compression);
    case 'jsonl':
      return jsonFormat(compression);
    case 'parquet':
      return parquetFormat(compression);
    default:
      return format satisfies never;
  }
}
