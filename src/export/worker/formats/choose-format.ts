import type { Compression, ExportSpec } from '../../jobs/export-spec.ts';
import { csvCopyOptions, csvRows } from './csv.ts';
import type { Format } from './format.ts';
import { keepSingleFile, writeParts, type TextRows } from './text-parts.ts';

const newline = 0x0a;

/** JSON lines: one object a row, a line break after each. */
const jsonRows: TextRows = {
  extension: 'jsonl',
  hasHeader: false,
  findRowEnd(buffer, start) {
    return buffer.indexOf(newline, start) + 1 || -1;
  },
};

/** A format whose files the engine writes as they are downloaded: one file, whatever its size. */
function wholeFile(extension: string, cells: Format['cells'], copyOptions: string): Format {
  return {
    extension,
    cells,
    copyOptions,
    async finish({ file, rows }, { folder, stem }) {
      return [await keepSingleFile(file, rows, folder, `${stem}.${extension}`)];
    },
  };
}

/**
 * A format of text, in parts. Without a wish for its compression a small result is one plain file, and a large one
 * gzip parts.
 */
function textFormat(
  text: TextRows,
  { cells, copyOptions, emptyFile }: Pick<Format, 'cells' | 'copyOptions' | 'emptyFile'>,
  compression: 'none' | 'gzip' | undefined,
): Format {
  return {
    extension: text.extension,
    cells,
    copyOptions,
    ...(emptyFile === undefined ? {} : { emptyFile }),
    async finish({ file, bytes, rows }, { folder, stem, singleFileMaxBytes, partMaxBytes, onProgress }) {
      const plainMaxBytes = { none: partMaxBytes, gzip: -1, auto: singleFileMaxBytes || -1 }[compression ?? 'auto'];
      if (bytes <= plainMaxBytes) return [await keepSingleFile(file, rows, folder, `${stem}.${text.extension}`)];
      return writeParts(file, bytes, text, {
        folder,
        stem,
        partMaxBytes,
        onProgress,
        isCompressed: compression !== 'none',
      });
    },
  };
}

function csvFormat(compression: Compression | undefined): Format {
  if (compression === 'zstd') return wholeFile('csv.zst', 'text', `${csvCopyOptions}, COMPRESSION zstd`);
  return textFormat(
    csvRows,
    // No selector's name has anything to quote.
    { cells: 'text', copyOptions: csvCopyOptions, emptyFile: (columns) => `${columns.join(',')}\n` },
    compression,
  );
}

function jsonFormat(compression: Compression | undefined): Format {
  if (compression === 'zstd') return wholeFile('jsonl.zst', 'typed', 'json, COMPRESSION zstd');
  return textFormat(jsonRows, { cells: 'typed', copyOptions: 'json', emptyFile: () => '' }, compression);
}

/** The format of a request's files. */
export function chooseFormat({ format = 'csv', compression }: ExportSpec): Format {
  switch (format) {
    case 'csv':
      return csvFormat(compression);
    case 'jsonl':
      return jsonFormat(compression);
    case 'parquet':
      return wholeFile(
        'parquet',
        'typed',
        `parquet, COMPRESSION ${compression === 'none' ? 'uncompressed' : (compression ?? 'zstd')}`,
      );
    default:
      return format satisfies never;
  }
}
