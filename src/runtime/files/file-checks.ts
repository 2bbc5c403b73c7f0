import assert from 'node:assert/strict';
import { createHash, webcrypto, randomUUID } from 'node:crypto';
import { constants, statSync, type BigIntStats } from 'node:fs';
import { access, open, stat, type FileHandle, copyFile, link } from 'node:fs/promises';
import { isSystemError, AppError, unlessMissing } from '../errors.ts';
import path from 'node:path';
import { removeFile, writeFileDurably } from './durable-file.ts';

export async function getSize(file: string): Promise<number> {
  return (await stat(file)).size;
}

/** Returns the size of a file, bytes; undefined if there is none. */
export async function findSize(file: string): Promise<number | undefined> {
  return await unlessMissing(getSize(file), undefined, 'ENOTDIR');
}

/** Reports whether a path leads to a regular file, which can be read repeatedly. */
export async function isRegularFile(file: string): Promise<boolean> {
  return (await stat(file)).isFile();
}

export async function exists(file: string): Promise<boolean> {
  return (await findSize(file)) !== undefined;
}

export async function assertReadable(file: string): Promise<void> {
  await access(file, constants.R_OK);
}

export async function assertExecutable(file: string): Promise<void> {
  await access(file, constants.X_OK);
}

/** Throws the system's error unless this process may create and remove files in a folder. Writes nothing. */
export async function assertWritableFolder(folder: string): Promise<void> {
  await access(folder, constants.W_OK | constants.X_OK);
}

/** Returns the SHA-256 of a file, hex. Memory: one read buffer. */
export async function hashFile(file: string): Promise<string> {
  return await hashRange(file, 0, await getSize(file));
}

/** Reads the bytes of a file from `from` up to `to`. */
export async function readRange(file: string, from: number, to: number): Promise<Buffer> {
  const handle = await open(file);
  try {
    return await readPart(handle, Buffer.allocUnsafe(to - from), from);
  } finally {
    await handle.close();
  }
}

/** Inserts bytes into a file that no other process uses. Memory: what follows them. */
export async function insertBytes(file: string, at: number, bytes: Buffer): Promise<void> {
  const rest = await readRange(file, at, await getSize(file));
  const handle = await open(file, 'a');
  try {
    await handle.truncate(at);
    // Unlike writev, it continues after a part, so that a full disk ends with an error.
    await handle.appendFile(Buffer.concat([bytes, rest]));
  } finally {
    await handle.close();
  }
}

/** Returns the SHA-256 of the bytes of a file from `from` up to `to`, hex. Memory: one read buffer. */
export async function hashRange(file: string, from: number, to: number): Promise<string> {
  const hash = createHash('sha256');
  const buffer = Buffer.allocUnsafe(Math.max(1, Math.min(1024 * 1024, to - from)));
  const handle = await open(file);
  try {
    for (let at = from; at < to;) {
      const part = await readPart(handle, buffer.subarray(0, Math.min(buffer.length, to - at)), at);
      if (part.length === 0) break;
      hash.update(part);
      at += part.length;
    }
  } finally {
    await handle.close();
  }
  return hash.digest('hex');
}

const partBytes = 8 * 1024 * 1024;
/** Parts that are hashed at a time, each by a thread of Node. */
const partsAtOnce = 2;

async function readPart(handle: FileHandle, buffer: Buffer, position: number): Promise<Buffer> {
  let length = 0;
  for (;;) {
    const { bytesRead } = await handle.read(buffer, length, buffer.length - length, position + length);
    length += bytesRead;
    if (bytesRead === 0 || length === buffer.length) return buffer.subarray(0, length);
  }
}

/** Returns the SHA-256 over the SHA-256 of each 8 MiB of a file, hex: half the time of one hash. Memory: two parts. */
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
    const combined = createHash('sha256');
    for (const digest of await Promise.all(digests)) combined.update(Buffer.from(digest));
    return combined.digest('hex');
  } finally {
    await handle.close();
  }
}

/** Identifies a state of a file without reading it: inode, size and time of the last write. */
export function stampOf(stats: Pick<BigIntStats, 'ino' | 'size' | 'mtimeNs'>): string {
  return `${stats.ino}:${stats.size}:${stats.mtimeNs}`;
}

export function findStamp(file: string): string | undefined {
  // Called several times a second for files that may never exist: an error would cost more.
  const stats = statSync(file, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? undefined : stampOf(stats);
}

export function findChangeMs(folder: string): number | undefined {
  return statSync(folder, { throwIfNoEntry: false })?.mtimeMs;
}

/** Returns the id of a file, which all its hard links share; undefined if there is none. */
export async function findFileId(file: string): Promise<string | undefined> {
  const stats = await unlessMissing(stat(file, { bigint: true }), undefined);
  return stats === undefined ? undefined : `${stats.dev}:${stats.ino}`;
}

/** Rejects a file system without hard links, which commits need. Tests replace `linkFile`. */
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

/** Copies a file; a symbolic link is followed. Error: EEXIST. */
export async function copyNew(file: string, second: string): Promise<void> {
  await copyFile(file, second, constants.COPYFILE_EXCL);
}

/** Creates a hard link, or a copy where links are not possible. Error: EEXIST. */
export async function linkOrCopy(file: string, second: string): Promise<void> {
  if (!(await tryLink(file, second))) await copyNew(file, second);
}

/** Creates a hard link; false if the two are on different file systems or links are not allowed. */
export async function tryLink(file: string, second: string): Promise<boolean> {
  try {
    await link(file, second);
    return true;
  } catch (error) {
    if (isSystemError(error, 'EXDEV', 'EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK')) return false;
    throw error;
  }
}
