import { createHash } from 'node:crypto';
import path from 'node:path';
import type { ReportFile } from '../../../reports/reports.ts';
import { moveFile, syncFile } from '../../../runtime/files/durable-file.ts';
import type { FileHandle } from '../../../runtime/files/open-file.ts';
import type { WorkerLimits } from '../../jobs/worker-messages.ts';
import type { Format } from './format.ts';
import { createGrowingText, type GrowingText } from './growing-text.ts';
import { writeSheet, type SheetColumn } from './sheet-file.ts';
import { writeParts } from './text-parts.ts';

const blockBytes = 1024 * 1024;
/** Bytes between two syncs, each concurrent with the next bytes, so that the last has little to do. */
const syncEveryBytes = 64 * 1024 * 1024;

interface MeasuredFile {
  readonly bytes: number;
  readonly sha256: string;
}

/** Fsyncs a file regularly, concurrently with writes. */
function createSyncing(handle: FileHandle): { written(bytes: number): void; end(): Promise<void> } {
  let syncing = Promise.resolve();
  let unsynced = 0;
  return {
    written(bytes) {
      unsynced += bytes;
      if (unsynced < syncEveryBytes) return;
      unsynced = 0;
      syncing = syncing.then(() => handle.datasync());
      syncing.catch(() => undefined);
    },
    end: () => syncing,
  };
}

/** Appends a text to its first file and hashes it; undefined, with the text restarted, above `maxBytes`. */
async function gatherText(
  text: GrowingText,
  maxBytes: number,
  onRead: (bytes: number) => void,
): Promise<MeasuredFile | undefined> {
  if (maxBytes < 0) return undefined;
  const handle = await text.openFirst();
  const syncing = createSyncing(handle);
  const hash = createHash('sha256');
  const block = Buffer.allocUnsafe(blockBytes);
  let bytes = 0;
  try {
    for (let length = await text.read(block); length > 0; length = await text.read(block)) {
      const read = block.subarray(0, length);
      hash.update(read);
      if (text.current() > 0) await handle.appendFile(read);
      bytes += length;
      if (bytes > maxBytes) {
        await text.restart();
        return undefined;
      }
      onRead(bytes);
      syncing.written(length);
    }
    await syncing.end();
    return { bytes, sha256: hash.digest('hex') };
  } finally {
    await syncing.end().catch(() => undefined);
    await handle.close();
    await text.close();
  }
}

/** Renames a file to the one file of a result, durably except for its folder. */
async function keepFile(file: string, folder: string, name: string): Promise<void> {
  await moveFile(file, path.join(folder, name));
  await syncFile(path.join(folder, name));
}

interface ResultOptions {
  /** On the file system of the result, so that it can be renamed. */
  readonly folder: string;
  readonly stem: string;
  readonly limits: Pick<WorkerLimits, 'singleFileMaxBytes' | 'partMaxBytes'>;
  /** Only for a workbook. */
  readonly columns?: readonly SheetColumn[];
  /** Called with the share of the result that is done, 0 to 1, once it is complete. */
  readonly onProgress: (share: number) => void;
}

export type ResultFiles = ReturnType<typeof startResultFiles>;

/** Starts to make the files of a download from the result, which queries write into `paths`, one after the other. */
export function startResultFiles(paths: readonly [string, ...string[]], format: Format, options: ResultOptions) {
  const { folder, stem, limits, columns = [], onProgress } = options;
  const { ending, partOptions, sheet } = format;
  const [first] = paths;
  const text = createGrowingText(paths);
  let wholeBytes = Infinity;
  let failure: unknown;
  let isGivenUp = false;
  const onRead = (bytes: number): void => {
    if (wholeBytes !== Infinity) onProgress(bytes / wholeBytes);
  };

  async function writeResult(): Promise<MeasuredFile | ReportFile[]> {
    if (sheet !== undefined) return [await writeSheet(text, { folder, stem, columns, onRead })];
    const plainMaxBytes = partOptions?.plainMaxBytes(limits) ?? Infinity;
    const gathered = await gatherText(text, plainMaxBytes, onRead);
    if (gathered !== undefined || partOptions === undefined) return gathered ?? [];
    const { rows, isCompressed } = partOptions;
    return writeParts(text, rows, { folder, stem, partMaxBytes: limits.partMaxBytes, isCompressed, onRead });
  }

  const written = writeResult();
  function giveUp(): void {
    isGivenUp = true;
    text.giveUp();
  }

  written.catch((error: unknown) => {
    // A result that was given up would hide the reason.
    if (!isGivenUp) failure = error;
    text.giveUp();
  });
  return {
    /** Waits until the earlier files of the result have been read. Error: if files cannot be made. */
    reached: (file: number): Promise<void> => text.reached(file),
    complete: (file: number): void => text.complete(file),
    giveUp,
    /** The error that ended them; the query may stop. */
    fault: (): unknown => failure,
    /** Finishes them, durably except for the folder. The result's own files may be removed. */
    async finish({ bytes, rows }: { readonly bytes: number; readonly rows: number }): Promise<ReportFile[]> {
      wholeBytes = bytes;
      for (let file = 0; file < text.files; file += 1) text.complete(file);
      const result = await written;
      if (Array.isArray(result)) return result;
      if (result.bytes !== bytes) throw new Error(`the file holds ${result.bytes} bytes, ${bytes} were written`);
      const name = `${stem}${ending}`;
      await keepFile(first, folder, name);
      return [{ name, rows, ...result }];
    },
    async abandon(): Promise<void> {
      giveUp();
      await Promise.allSettled([written]);
    },
  };
}
