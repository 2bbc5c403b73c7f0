import assert from 'node:assert/strict';
import { createHash, webcrypto } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import { access, open, stat, type FileHandle } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { isSystemError } from '../errors.ts';

/** Size of a file in bytes. Errors: those of the system, also when it is not there. */
export async function getSize(file: string): Promise<number> {
  return (await stat(file)).size;
}

/** Size of a file in bytes; undefined when it is not there. */
export async function findSize(file: string): Promise<number | undefined> {
  try {
    return await getSize(file);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return undefined;
    throw error;
  }
}

/** Says whether a path leads to a regular file, which can be read again and again. Errors: those of the system. */
export async function isRegularFile(file: string): Promise<boolean> {
  return (await stat(file)).isFile();
}

/** Says whether a file is there. */
export async function exists(file: string): Promise<boolean> {
  return (await findSize(file)) !== undefined;
}

/** Throws the system's error unless this process may execute a file. */
export async function assertExecutable(file: string): Promise<void> {
  await access(file, constants.X_OK);
}

/** Throws the system's error unless this process may make and remove files in a folder. Nothing is written. */
export async function assertWritableFolder(folder: string): Promise<void> {
  await access(folder, constants.W_OK | constants.X_OK);
}

/** SHA-256 of a file's bytes, hex. Memory: one read buffer. */
export async function hashFile(file: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file, { highWaterMark: 1024 * 1024 }), hash);
  return hash.digest('hex');
}

const partBytes = 8 * 1024 * 1024;
/** Parts that are hashed at a time, each by a thread of Node's own. */
const partsAtOnce = 2;

/** Fills a buffer from a place in a file on; returns what the file has there. */
async function readPart(handle: FileHandle, buffer: Buffer, position: number): Promise<Buffer> {
  let length = 0;
  for (;;) {
    const { bytesRead } = await handle.read(buffer, length, buffer.length - length, position + length);
    length += bytesRead;
    if (bytesRead === 0 || length === buffer.length) return buffer.subarray(0, length);
  }
}

/**
 * SHA-256 over the SHA-256 of each 8 MiB of a file, hex: as good a name of its bytes as one SHA-256 over all, in half of
 * the time. Memory: two parts.
 */
export async function hashFileByParts(file: string): Promise<string> {
  const handle = await open(file);
  try {
    const digests: Promise<ArrayBuffer>[] = [];
    const free: Promise<Buffer>[] = [];
    for (let position = 0; ; position += partBytes) {
      const buffer = digests.length < partsAtOnce ? Buffer.allocUnsafe(partBytes) : await free.shift();
      assert(buffer !== undefined, 'each part gives its buffer back');
      const part = await readPart(handle, buffer, position);
      const digest = webcrypto.subtle.digest('SHA-256', part);
      digests.push(digest);
      free.push(digest.then(() => buffer));
      if (part.length < partBytes) break;
    }
    const whole = createHash('sha256');
    for (const digest of await Promise.all(digests)) whole.update(Buffer.from(digest));
    return whole.digest('hex');
  } finally {
    await handle.close();
  }
}
