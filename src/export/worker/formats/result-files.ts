import type { ReportFile } from '../../../reports/reports.ts';
import type { WorkerLimits } from '../../jobs/worker-messages.ts';
import type { Format } from './format.ts';
import { createGrowingFile } from './growing-file.ts';
import { keepFile, measureFile, type MeasuredFile } from './single-file.ts';
import { writeParts } from './text-parts.ts';

/** Where the files of a result go, and how large they may be. */
export interface ResultOptions {
  /** On the file system of the result, so that it can be renamed. */
  readonly folder: string;
  /** Beginning of each file name. */
  readonly stem: string;
  readonly limits: Pick<WorkerLimits, 'singleFileMaxBytes' | 'partMaxBytes'>;
  /** Gets the share of the result that is done, 0 to 1, from when it is whole. */
  readonly onProgress: (share: number) => void;
}

/** A result as the query has written it. */
export interface WrittenResult {
  readonly bytes: number;
  readonly rows: number;
}

/** The files that are downloaded, being made while the query still writes its result. */
export interface ResultFiles {
  /** What has gone wrong with them: then the query need not go on. */
  fault(): unknown;
  /** Ends them: durable, the folder's own entries apart. The result's own file may be gone then. */
  finish(result: WrittenResult): Promise<ReportFile[]>;
  /** Leaves nothing of them; the result is not wanted. */
  abandon(): Promise<void>;
}

/** Starts to make the result, which a query writes into `file`, the files that are downloaded. */
export function startResultFiles(file: string, format: Format, options: ResultOptions): ResultFiles {
  const { folder, stem, limits, onProgress } = options;
  const { extension, parts } = format;
  const growing = createGrowingFile(file);
  let wholeBytes = Infinity;
  let fault: unknown;
  const onRead = (bytes: number): void => {
    if (wholeBytes !== Infinity) onProgress(bytes / wholeBytes);
  };

  async function make(): Promise<MeasuredFile | ReportFile[]> {
    const plainMaxBytes = parts?.plainMaxBytes(limits) ?? Infinity;
    const measured = await measureFile(growing, plainMaxBytes, onRead);
    if (measured !== undefined || parts === undefined) return measured ?? [];
    const { rows, isCompressed } = parts;
    return writeParts(growing, rows, { folder, stem, partMaxBytes: limits.partMaxBytes, isCompressed, onRead });
  }

  const made = make();
  made.catch((error: unknown) => {
    fault = error;
  });
  return {
    fault: () => fault,
    async finish({ bytes, rows }) {
      wholeBytes = bytes;
      growing.complete();
      const result = await made;
      if (Array.isArray(result)) return result;
      const name = `${stem}.${extension}`;
      await keepFile(file, folder, name);
      return [{ name, rows, ...result }];
    },
    async abandon() {
      growing.giveUp();
      await Promise.allSettled([made]);
    },
  };
}
