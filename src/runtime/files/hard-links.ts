import { randomUUID } from 'node:crypto';
import { link } from 'node:fs/promises';
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
