import assert from 'node:assert/strict';
import { createHash, webcrypto, randomUUID } from 'node:crypto';
import { constants, createReadStream, statSync, type BigIntStats } from 'node:fs';
import { access, open, stat, type FileHandle, copyFile, link } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { isSystemError, AppError } from '../errors.ts';
import path from 'node:path';
import { removeFile, writeFileDurably } from './durable-file.ts';

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

/** Names one state of a file, without reading it: its number, size and time of the last write. */
export function stampOf(stats: Pick<BigIntStats, 'ino' | 'size' | 'mtimeNs'>): string {
  return `${stats.ino}:${stats.size}:${stats.mtimeNs}`;
}

/** The state of a file; undefined when there is none. */
export function findStamp(file: string): string | undefined {
  // Asked several times a second of files that may never be there: an error would cost more than the look.
  const stats = statSync(file, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? undefined : stampOf(stats);
}

/** Refuses a file system on which the commit's link(2) cannot work. `linkFile` stands in for link(2) in its test. */
export async function assertHardLinks(folder: string, linkFile: typeof link = link): Promise<void> {
  const probe = path.join(folder, `.probe-${randomUUID()}.tmp`);
  try {
    await writeFileDurably(probe, '');
    await linkFile(probe, `${probe}.link`);
  } catch (error) {
    if (!isSystemError(error, 'EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK')) throw error;
    throw new AppError('start_failed', `the file system of ${folder} has no hard links, which commits need`, {
      cause: error,
      retryable: false,
      hint: 'Put the data folder on a local file system such as ext4 or xfs.',
    });
  } finally {
    await removeFile(`${probe}.link`);
    await removeFile(probe);
  }
}

/**
 * Gives a file a second name, which its removal under the first one does not touch; a copy where the two lie on
 * different file systems, or links are not allowed. Errors: those of the system, also when the file is not there, or
 * the second name is taken.
 */
export async function linkOrCopy(file: string, second: string): Promise<void> {
  try {
    await link(file, second);
  } catch (error) {
    if (!isSystemError(error, 'EXDEV', 'EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK')) throw error;
    await copyFile(file, second, constants.COPYFILE_EXCL);
  }
}
