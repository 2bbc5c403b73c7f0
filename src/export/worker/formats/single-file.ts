import { createHash } from 'node:crypto';
import { rename } from 'node:fs/promises';
import path from 'node:path';
import { syncFile } from '../../../runtime/files/durable-file.ts';
import type { GrowingFile } from './growing-file.ts';

const blockBytes = 1024 * 1024;
/** What is written between two syncs, of which each is under way while the next bytes are: the last has little to do. */
const syncEveryBytes = 64 * 1024 * 1024;

/** The bytes of a whole file. */
export interface MeasuredFile {
  readonly bytes: number;
  readonly sha256: string;
}

/** Measures a file while it is written; undefined as soon as it is larger than so many bytes. */
export async function measureFile(
  file: GrowingFile,
  maxBytes: number,
  onRead: (bytes: number) => void,
): Promise<MeasuredFile | undefined> {
  if (maxBytes < 0) return undefined;
  const handle = await file.open();
  const hash = createHash('sha256');
  const block = Buffer.allocUnsafe(blockBytes);
  let bytes = 0;
  let syncing = Promise.resolve();
  try {
    for (let length = blockBytes; length === blockBytes;) {
      length = await file.fill(handle, block, bytes);
      hash.update(block.subarray(0, length));
      bytes += length;
      if (bytes > maxBytes) return undefined;
      onRead(bytes);
      if (bytes % syncEveryBytes === 0) {
        syncing = syncing.then(() => handle.datasync());
        syncing.catch(() => undefined);
      }
    }
    await syncing;
    return { bytes, sha256: hash.digest('hex') };
  } finally {
    await syncing.catch(() => undefined);
    await handle.close();
  }
}

/** Makes a file the one file of a result: renamed, durable. The folder's own entries are the caller's to sync. */
export async function keepFile(file: string, folder: string, name: string): Promise<void> {
  await rename(file, path.join(folder, name));
  await syncFile(path.join(folder, name));
}
