import { defaultFormat, endingOf, getFormat, type TextFormat } from '../../../datasets/file-formats.ts';
import type { ExportSpec } from '../../jobs/export-spec.ts';
import type { WorkerLimits } from '../../jobs/worker-messages.ts';
import type { Cells } from '../selector-sql.ts';

/** How a text becomes parts. */
export interface Parts {
  readonly rows: TextFormat;
  readonly isCompressed: boolean;
  /** A result up to so many bytes is one plain file all the same; below 0: none is. */
  plainMaxBytes(limits: Pick<WorkerLimits, 'singleFileMaxBytes' | 'partMaxBytes'>): number;
}

/** How the files of one request are written. */
export interface Format {
  /** Ending of the file that the engine writes, with its full stop. */
  readonly ending: string;
  /** What the rows are written with. */
  readonly cells: Cells;
  /**
   * What follows FORMAT in the engine's COPY statement, which writes the rows in the order of the query and appends to
   * its file only.
   */
  readonly copyOptions: string;
  /** The same with less memory and other bytes, for rows of which the usual number at a time is too much; absent: no way. */
  readonly narrowOptions?: string;
  /**
   * With several threads the engine cuts the file where they happened to meet: the same rows give the same bytes by one
   * thread only.
   */
  readonly byOneThread?: true;
  /** The same as `copyOptions` for rows that go on a text which is begun; absent: no file can be made of two. */
  readonly appendOptions?: string;
  /** The file of a result without rows, where no query has to write it. */
  readonly emptyText?: (columns: readonly string[]) => string;
  /** Absent: the file that the engine writes is the one that is downloaded, whatever its size. */
  readonly parts?: Parts;
}

/**
 * The format of a request's files. Without a wish for its compression a small text is one plain file, and a large one gzip
 * parts.
 */
export function chooseFormat({ format: name = defaultFormat, compression }: ExportSpec): Format {
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
  const { copyOptions, appendOptions, emptyText } = declared;
  if (compression === 'zstd') return { ending, cells, copyOptions: `${copyOptions}, COMPRESSION zstd` };
  const parts: Parts = {
    rows: declared,
    isCompressed: compression !== 'none',
    plainMaxBytes: ({ singleFileMaxBytes, partMaxBytes }) =>
      ({ none: partMaxBytes, gzip: -1, auto: singleFileMaxBytes || -1 })[compression ?? 'auto'],
  };
  return { ending, cells, copyOptions, appendOptions, emptyText, parts };
}
