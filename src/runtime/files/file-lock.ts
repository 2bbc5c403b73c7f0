import { closeSync, openSync } from 'node:fs';
import { AppError } from '../errors.ts';
import { lockDescriptor } from './lock.ts';

/**
 * Takes the exclusive lock of a file that is there, or refuses with `locked`. It is flock(2) on the file itself, as that
 * of a folder (lock.ts): every path to the file meets it, nothing is written, and it ends with the process. Errors:
 * those of the system when the file cannot be opened.
 */
export function acquireFileLock(file: string, what: string): { release(): void } {
  const fd = openSync(file, 'r');
  let isOurs = false;
  try {
    isOurs = lockDescriptor(fd, file);
  } finally {
    if (!isOurs) closeSync(fd);
  }
  if (!isOurs)
    throw new AppError('locked', `${file} is in use by another ${what}`, { hint: 'Wait for that one, or stop it.' });
  return { release: () => closeSync(fd) };
}
