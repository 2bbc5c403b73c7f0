import type { ReportFile } from '../../../reports/reports.ts';
import type { Cells } from '../selector-sql.ts';

/** A result as the query has written it: one file of rows. */
export interface WrittenResult {
  readonly file: string;
  readonly bytes: number;
  readonly rows: number;
}

/** How a result becomes the files that are downloaded. */
export interface FinishOptions {
  /** Where they go: on the file system of the result, so that it can be renamed. */
  readonly folder: string;
  /** Beginning of each file name. */
  readonly stem: string;
  /** A result up to this size is one plain file; 0: never. */
  readonly singleFileMaxBytes: number;
  /** Bound of a part, bytes before compression. A single row larger than that has a part of its own. */
  readonly partMaxBytes: number;
  /** Gets the share of the result that is done, 0 to 1. */
  readonly onProgress: (share: number) => void;
}

/** A kind of file that an export can be written as. */
export interface Format {
  /** Of the file that the engine writes, without the dot. */
  readonly extension: string;
  /** What the rows are written with. */
  readonly cells: Cells;
  /** What follows FORMAT in the engine's COPY statement, which writes the rows in the order of the query. */
  readonly copyOptions: string;
  /** The file of a result without rows, where no query has to write it. */
  readonly emptyFile?: (columns: readonly string[]) => string;
  /**
   * Makes the result the files that are downloaded: durable, the folder's own entries apart. The result's own file may
   * be gone then.
   */
  finish(result: WrittenResult, options: FinishOptions): Promise<ReportFile[]>;
}
