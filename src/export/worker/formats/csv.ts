import { keepSingleFile, writeParts } from './csv-parts.ts';
import type { Format } from './format.ts';

/**
 * CSV of service.md 5: a header row, RFC 4180 quoting, LF; one plain file, or `.csv.gz` parts that each begin with the
 * header.
 */
export const csv: Format = {
  extension: 'csv',
  copyOptions: "csv, HEADER true, DELIMITER ',', QUOTE '\"', ESCAPE '\"'",
  // No selector's name has anything to quote.
  emptyFile: (columns) => `${columns.join(',')}\n`,
  async finish({ file, bytes, rows }, { folder, stem, singleFileMaxBytes, partMaxBytes, onProgress }) {
    if (bytes <= singleFileMaxBytes) return [await keepSingleFile(file, rows, folder, `${stem}.csv`)];
    return writeParts(file, bytes, { folder, stem, partMaxBytes, onProgress });
  },
};
