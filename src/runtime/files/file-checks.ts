import { createHash } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import { access, stat } from 'node:fs/promises';
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
