import type { DataFile } from '../../lake/log/snapshot.ts';

/** Rows of the lake, one after the other in their order, that one statement reads. */
export interface Slice {
  readonly files: readonly DataFile[];
  /** Which rows of its one file; absent: all of its files. */
  readonly rows?: { readonly from: number; readonly before: number };
}

/** Rows of a row group as the engine writes it: a slice ends between two, so that none is read twice. */
const groupRows = 122_880;
/** Slices of a table, at most, or nearly: each costs a statement, about 10 ms. */
const mostSlices = 64;

/** The slices of one large file. */
function* cutFile(file: DataFile, rows: number, sliceRows: number): Generator<Slice> {
  for (let from = 0; from < rows; from += sliceRows)
    // The last one is open: it must not matter whether the log is right about the number.
    yield {
      files: [file],
      rows: { from, before: from + sliceRows < rows ? from + sliceRows : Number.MAX_SAFE_INTEGER },
    };
}

/**
 * Cuts files into slices of about as many rows, in their order: some files together, or some row groups of one. A file
 * whose rows the log does not say is a slice of its own.
 */
export function planSlices(files: readonly DataFile[]): Slice[] {
  const allRows = files.reduce((sum, { numRecords = 0 }) => sum + numRecords, 0);
  const sliceRows = Math.max(1, Math.ceil(allRows / mostSlices / groupRows)) * groupRows;
  const slices: Slice[] = [];
  let together: DataFile[] = [];
  let togetherRows = 0;

  function endSlice(): void {
    if (together.length > 0) slices.push({ files: together });
    together = [];
    togetherRows = 0;
  }

  for (const file of files) {
    const rows = file.numRecords ?? Infinity;
    if (togetherRows + rows > sliceRows) endSlice();
    if (rows > sliceRows && rows !== Infinity) {
      slices.push(...cutFile(file, rows, sliceRows));
      continue;
    }
    together.push(file);
    togetherRows += rows;
  }
  endSlice();
  return slices;
}
