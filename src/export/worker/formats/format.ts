import {
  csvOf,
  defaultFormat,
  endingOf,
  fileFormats,
  getFormat,
  type TextFormat,
} from '../../../datasets/file-formats.ts';
import type { ExportSpec } from '../../jobs/export-spec.ts';
import type { WorkerLimits } from '../../jobs/worker-messages.ts';
import type { Cells } from '../selector-sql.ts';

interface PartOptions {
  readonly rows: TextFormat;
  readonly isCompressed: boolean;
  /** Largest result that is one plain file; negative: none. */
  plainMaxBytes(limits: Pick<WorkerLimits, 'singleFileMaxBytes' | 'partMaxBytes'>): number;
}

export interface Format {
  /** Ending of the engine's file, with its full stop. */
  readonly ending: string;
  readonly cells: Cells;
  /** Options after FORMAT in COPY, which writes rows in the order of the query and only appends. */
  readonly copyOptions: string;
  /** The same with less memory and other bytes, for wide rows; absent: there is none. */
  readonly narrowOptions?: string;
  /** Several threads would cut the file at arbitrary rows: the bytes would differ between runs. */
  readonly byOneThread?: true;
  /** As `copyOptions`, for rows appended to a text; absent: no file can be made of two. */
  readonly appendOptions?: string;
  /** The file of a result without rows, if no query is needed. */
  readonly emptyText?: (columns: readonly string[]) => string;
  /** Present for a workbook, which is made of the engine's text. */
  readonly sheet?: { readonly maxRows: number };
  /** Absent: the engine's file is downloaded as it is. */
  readonly partOptions?: PartOptions;
}

/** Chooses the format of a request. By default a small text is one plain file, and a large one gzip parts. */
export function chooseFormat({ format: name = defaultFormat, compression, dialect }: ExportSpec): Format {
  const declared = getFormat(name);
  const { cells } = declared;
  const ending = endingOf({ format: name, compression: compression === 'zstd' ? 'zstd' : 'none' });
  if (declared.kind === 'binary') {
    const copyOptions = declared.copyOptions(compression ?? declared.usualCompression);
    return {
      ending,
      cells,
      copyOptions,
      narrowOptions: `${copyOptions}, ${declared.narrowOptions}`,
      byOneThread: true,
    };
  }
  if (declared.kind === 'sheet') {
    const { copyOptions, appendOptions, emptyText } = fileFormats.csv;
    return { ending, cells, copyOptions, appendOptions, emptyText, sheet: { maxRows: declared.maxRows } };
  }
  const { copyOptions, appendOptions, emptyText } = dialect === undefined ? declared : csvOf(dialect);
  if (compression === 'zstd') return { ending, cells, copyOptions: `${copyOptions}, COMPRESSION zstd` };
  const partOptions: PartOptions = {
    rows: declared,
    isCompressed: compression !== 'none',
    plainMaxBytes: ({ singleFileMaxBytes, partMaxBytes }) =>
      ({ none: partMaxBytes, gzip: -1, auto: singleFileMaxBytes || -1 })[compression ?? 'auto'],
  };
  return { ending, cells, copyOptions, appendOptions, emptyText, partOptions };
}
