import { stat } from 'node:fs/promises';
import { isSystemError } from '../runtime/errors.ts';

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
