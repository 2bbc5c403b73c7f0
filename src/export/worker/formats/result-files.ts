import { createHash } from 'node:crypto';
import { rename, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import type { ReportFile } from '../../../reports/reports.ts';
import { syncFile } from '../../../runtime/files/durable-file.ts';
import type { WorkerLimits } from '../../jobs/worker-messages.ts';
import type { Format } from './format.ts';
import { createGrowingText, type GrowingText } from './growing-text.ts';
import { writeParts } from './text-parts.ts';

const blockBytes = 1024 * 1024;
/** What is written between two syncs, of which each is under way while the next bytes are: the last has little to do. */
const syncEveryBytes = 64 * 1024 * 1024;

/** The bytes of a whole file. */
interface MeasuredFile {
  readonly bytes: number;
  readonly sha256: string;
}

/** Fsyncs a file now and then, beside what is written to it meanwhile. */
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

/**
 * Makes a text one file, its first, while it is written: the others are appended to it. Measures it meanwhile; undefined
 * as soon as it is larger than so many bytes, the text then begun anew.
 */
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

/** Makes a file the one file of a result: renamed, durable. The folder's own entries are the caller's to sync. */
async function keepFile(file: string, folder: string, name: string): Promise<void> {
  await rename(file, path.join(folder, name));
  await syncFile(path.join(folder, name));
}

/** Where the files of a result go, and how large they may be. */
interface ResultOptions {
  /** On the file system of the result, so that it can be renamed. */
  readonly folder: string;
  /** Beginning of each file name. */
  readonly stem: string;
  readonly limits: Pick<WorkerLimits, 'singleFileMaxBytes' | 'partMaxBytes'>;
  /** Gets the share of the result that is done, 0 to 1, from when it is whole. */
  readonly onProgress: (share: number) => void;
}

/** A result as the query has written it. */
interface WrittenResult {
  readonly bytes: number;
  readonly rows: number;
}

/** The files that are downloaded, being made while the query still writes its result. */
export interface ResultFiles {
  /** Waits until the files of the result before this one have been read. Error: when files cannot be made. */
  reached(file: number): Promise<void>;
  /** Says that a file of the result is whole. */
  complete(file: number): void;
  /** Says that the result will never be whole: who waits for it gets an error. */
  giveUp(): void;
  /** What has gone wrong with them: then the query need not go on. */
  fault(): unknown;
  /** Ends them: durable, the folder's own entries apart. The result's own files may be gone then. */
  finish(result: WrittenResult): Promise<ReportFile[]>;
  /** Leaves nothing of them; the result is not wanted. */
  abandon(): Promise<void>;
}

/**
 * Starts to make the result, which queries write into `paths`, one file after the other, the files that are downloaded.
 */
export function startResultFiles(
  paths: readonly [string, ...string[]],
  format: Format,
  options: ResultOptions,
): ResultFiles {
  const { folder, stem, limits, onProgress } = options;
  const { ending, parts } = format;
  const [first] = paths;
  const text = createGrowingText(paths);
  let wholeBytes = Infinity;
  let fault: unknown;
  let isGivenUp = false;
  const onRead = (bytes: number): void => {
    if (wholeBytes !== Infinity) onProgress(bytes / wholeBytes);
  };

  async function make(): Promise<MeasuredFile | ReportFile[]> {
    const plainMaxBytes = parts?.plainMaxBytes(limits) ?? Infinity;
    const gathered = await gatherText(text, plainMaxBytes, onRead);
    if (gathered !== undefined || parts === undefined) return gathered ?? [];
    const { rows, isCompressed } = parts;
    return writeParts(text, rows, { folder, stem, partMaxBytes: limits.partMaxBytes, isCompressed, onRead });
  }

  const made = make();
  function giveUp(): void {
    isGivenUp = true;
    text.giveUp();
  }

  made.catch((error: unknown) => {
    // What was given up has no fault of its own, which would hide the reason.
    if (!isGivenUp) fault = error;
    text.giveUp();
  });
  return {
    reached: (file) => text.reached(file),
    complete: (file) => text.complete(file),
    giveUp,
    fault: () => fault,
    async finish({ bytes, rows }) {
      wholeBytes = bytes;
      for (let file = 0; file < text.files; file += 1) text.complete(file);
      const result = await made;
      if (Array.isArray(result)) return result;
      if (result.bytes !== bytes) throw new Error(`the file holds ${result.bytes} bytes, ${bytes} were written`);
      const name = `${stem}${ending}`;
      await keepFile(first, folder, name);
      return [{ name, rows, ...result }];
    },
    async abandon() {
      giveUp();
      await Promise.allSettled([made]);
    },
  };
}
