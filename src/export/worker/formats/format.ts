import type { WorkerLimits } from '../../jobs/worker-messages.ts';
import type { Cells } from '../selector-sql.ts';
import type { TextRows } from './text-parts.ts';

/** How a text becomes parts. */
export interface Parts {
  readonly rows: TextRows;
  readonly isCompressed: boolean;
  /** A result up to so many bytes is one plain file all the same; below 0: none is. */
  plainMaxBytes(limits: Pick<WorkerLimits, 'singleFileMaxBytes' | 'partMaxBytes'>): number;
}

/** A kind of file that an export can be written as. */
export interface Format {
  /** Of the file that the engine writes, without the dot. */
  readonly extension: string;
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
  readonly emptyFile?: (columns: readonly string[]) => string;
  /** Absent: the file that the engine writes is the one that is downloaded, whatever its size. */
  readonly parts?: Parts;
}
