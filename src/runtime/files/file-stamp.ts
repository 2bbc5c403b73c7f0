import { statSync } from 'node:fs';
import { isSystemError } from '../errors.ts';

/**
 * What differs between one state of a file and the next, without reading it: its number, size and time of the last write.
 * Undefined when there is none.
 */
export function findStamp(file: string): string | undefined {
  try {
    const { ino, size, mtimeNs } = statSync(file, { bigint: true });
    return `${ino}:${size}:${mtimeNs}`;
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
}
