import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { isSystemError } from '../errors.ts';

/** Size of a file in bytes; undefined when it is not there. */
export async function findSize(file: string): Promise<number | undefined> {
  try {
    return (await stat(file)).size;
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return undefined;
    throw error;
  }
}

/** Says whether a file is there. */
export async function exists(file: string): Promise<boolean> {
  return (await findSize(file)) !== undefined;
}

/** SHA-256 of a file's bytes, hex. Memory: one read buffer. */
export async function hashFile(file: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file, { highWaterMark: 1024 * 1024 }), hash);
  return hash.digest('hex');
}
