import { createHash } from 'node:crypto';
import { open, type FileHandle } from 'node:fs/promises';
import { isSystemError } from '../../runtime/errors.ts';

/** Bytes that a backup keeps, under their own hash. */
export interface StoredBytes {
  /** SHA-256, hex. */
  readonly sha256: string;
  readonly size: number;
}

const pieceBytes = 1024 * 1024;

/** Reads a file in pieces of at most 1 MiB; the buffer is used again for each. */
export async function* readPieces(file: string): AsyncGenerator<Uint8Array> {
  const handle = await open(file, 'r');
  try {
    const buffer = Buffer.allocUnsafe(pieceBytes);
    for (;;) {
      const { bytesRead } = await handle.read(buffer, 0, pieceBytes);
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await handle.close();
  }
}

async function writeWhole(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += (await handle.write(bytes, at)).bytesWritten;
}

/** Writes pieces to a new file, mode 0600, and fsyncs it; says what was written. The caller makes its name durable. */
export async function writePieces(pieces: AsyncIterable<Uint8Array>, file: string): Promise<StoredBytes> {
  const hash = createHash('sha256');
  let size = 0;
  const handle = await open(file, 'wx', 0o600);
  try {
    for await (const piece of pieces) {
      hash.update(piece);
      size += piece.length;
      await writeWhole(handle, piece);
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
  return { sha256: hash.digest('hex'), size };
}

/** Hashes a file; undefined when it is not there. */
export async function findStored(file: string): Promise<StoredBytes | undefined> {
  const hash = createHash('sha256');
  let size = 0;
  try {
    for await (const piece of readPieces(file)) {
      hash.update(piece);
      size += piece.length;
    }
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
  return { sha256: hash.digest('hex'), size };
}

/** Says whether two are the same bytes. */
export function isSame(a: StoredBytes | undefined, b: StoredBytes): boolean {
  return a?.sha256 === b.sha256 && a.size === b.size;
}
