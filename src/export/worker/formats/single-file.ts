import { createHash } from 'node:crypto';
import { rename, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { syncFile } from '../../../runtime/files/durable-file.ts';
import type { GrowingText } from './growing-text.ts';

const blockBytes = 1024 * 1024;
/** What is written between two syncs, of which each is under way while the next bytes are: the last has little to do. */
const syncEveryBytes = 64 * 1024 * 1024;

/** The bytes of a whole file. */
export interface MeasuredFile {
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
export async function gatherText(
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
export async function keepFile(file: string, folder: string, name: string): Promise<void> {
  await rename(file, path.join(folder, name));
  await syncFile(path.join(folder, name));
}
