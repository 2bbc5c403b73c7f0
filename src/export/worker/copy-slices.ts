import { withEmptyFile, type DataFile } from '../../lake/log/snapshot.ts';
import { localFiles } from '../../runtime/store/open-store.ts';
import { inParallel } from '../../runtime/async/in-parallel.ts';
import { findSize } from '../../runtime/files/file-checks.ts';
import type { ExportQuery, ExportStatement } from './export-query.ts';
import type { Format } from './formats/format.ts';
import type { ResultFiles } from './formats/result-files.ts';
import type { QueryEngine } from './query-engine.ts';

/** Consecutive rows of the lake that one statement reads. */
export interface Slice {
  readonly files: readonly DataFile[];
  /** The rows of its one file; absent: all rows of its files. */
  readonly rows?: { readonly from: number; readonly before: number };
}

/** Rows of a row group: slices end between two, so that none is read twice. */
const groupRows = 122_880;
/** Slices of a table, at most, approximately: each costs a statement, about 10 ms. */
const maxSlices = 64;

function* cutFile(file: DataFile, rows: number, sliceRows: number): Generator<Slice> {
  for (let from = 0; from < rows; from += sliceRows)
    // The last one is open: the log's number may be wrong.
    yield {
      files: [file],
      rows: { from, before: from + sliceRows < rows ? from + sliceRows : Number.MAX_SAFE_INTEGER },
    };
}

/**
 * Cuts files into slices of similar numbers of rows, in their order: several files, or row groups of one. A file whose
 * rows the log does not have is one slice.
 */
export function planSlices(files: readonly DataFile[]): Slice[] {
  const allRows = files.reduce((sum, { numRecords = 0 }) => sum + numRecords, 0);
  const sliceRows = Math.max(1, Math.ceil(allRows / maxSlices / groupRows)) * groupRows;
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

/** Slices on disk per engine, the current one included. */
const slicesAhead = 2;

interface SliceCopy {
  readonly engines: readonly QueryEngine[];
  readonly query: ExportQuery;
  readonly format: Format;
  /** The stored empty file, with every column. */
  readonly emptyFile: string;
  /** In the order of the rows; several only if the query has `selectRows` and the format `appendOptions`. */
  readonly slices: readonly Slice[];
  readonly paths: readonly string[];
  readonly verify: (files: readonly DataFile[]) => Promise<void>;
}

export type SliceCopyJob = ReturnType<typeof copySlices>;

function selectOf({ select, selectRows }: ExportQuery, { rows }: Slice): ExportStatement {
  if (rows === undefined || selectRows === undefined) return select;
  const { sql, values } = selectRows;
  return { sql, values: { ...values, fromRow: BigInt(rows.from), beforeRow: BigInt(rows.before) } };
}

/**
 * Starts to copy the rows of a query into the files of its slices, while a result is made of them in order. Small
 * statements on engines of one thread replace one statement on all threads: an engine that keeps the order of rows
 * buffers what its threads have read, and little of a slice is on disk if the result keeps up.
 */
export function copySlices(
  { engines, query, format, emptyFile, slices, paths, verify }: SliceCopy,
  result: ResultFiles,
) {
  const idle = [...engines];
  const busy = new Map<QueryEngine, string>();
  let [rows, ended, endedBytes] = [0, 0, 0];

  async function copyWith(engine: QueryEngine, slice: Slice, index: number): Promise<void> {
    const file = paths[index] ?? '';
    const options = index === 0 ? format.copyOptions : (format.appendOptions ?? '');
    await result.reached(index + 1 - slicesAhead * engines.length);
    await verify(slice.files);
    // Verifies the next slice concurrently; its faults are thrown when it is copied.
    verify(slices[index + engines.length]?.files ?? []).catch(() => undefined);
    busy.set(engine, file);
    const copied = await localFiles.use(withEmptyFile({ emptyFile }, slice.files), (read) =>
      engine.copyTo(selectOf(query, slice), read, file, options),
    );
    const bytes = (await findSize(file)) ?? 0;
    busy.delete(engine);
    rows += copied;
    ended += 1;
    endedBytes += bytes;
    result.complete(index);
  }

  async function copy([index, slice]: [number, Slice]): Promise<void> {
    const engine = idle.pop();
    if (engine === undefined) throw new Error('more slices at a time than engines');
    try {
      await copyWith(engine, slice, index);
    } catch (error) {
      // The others may wait for this slice; they fail after this error, which is the reason.
      result.giveUp();
      throw error;
    } finally {
      busy.delete(engine);
      idle.push(engine);
    }
  }

  return {
    rows: inParallel(slices.entries(), engines.length, copy).then(() => rows),
    progress(): number {
      const underWay = [...busy.keys()].reduce((sum, engine) => sum + engine.progress(), 0);
      return (ended + underWay) / slices.length;
    },
    interrupt(): void {
      result.giveUp();
      for (const engine of engines) engine.interrupt();
    },
    writtenBytes: async (): Promise<number> => {
      // A slice that ends while sizes are read must not count twice.
      const before = endedBytes;
      const sizes = await Promise.all([...busy.values()].map(findSize));
      return sizes.reduce<number>((sum, size = 0) => sum + size, before);
    },
  };
}
