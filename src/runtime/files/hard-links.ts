import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { copyFile, link } from 'node:fs/promises';
import path from 'node:path';
import { AppError, isSystemError } from '../errors.ts';
import { removeFile, writeFileDurably } from './durable-file.ts';

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
