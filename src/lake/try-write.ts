import path from 'node:path';
import { removeFile, writeNewFile } from '../runtime/files/durable-file.ts';
import { assertWritableFolder } from '../runtime/files/file-checks.ts';
import { isSystemError } from '../runtime/errors.ts';
import { lakePaths } from './lake.ts';
import { logFolder } from './log/log-files.ts';

/**
 * In the lake's own folder, where no reader looks. A temporary like any other: the sweep of a start removes what a
 * crash has left.
 */
const fileName = '.write-probe.tmp';
/** A whole block: a few bytes may find room in the inode on a disk that is full. */
const bytes = Buffer.alloc(4096);

/**
 * Tries whether the lake can be written, as a flush would: a file beside the table is written, fsynced and removed, and
 * the folders are asked for the right. A few system calls and one fsync. `assertFolder` throws when the lake's folder
 * is another's by now: nothing is written then. Errors: the file system's, which name the folder.
 */
export async function tryWrite(lakeDir: string, assertFolder: () => void): Promise<void> {
  const { root, table, young, failed, staging } = lakePaths(lakeDir);
  assertFolder();
  // At once: each of them one after the other would wake an idle process.
  await Promise.all([root, table, logFolder(table), young, failed, staging].map(assertWritableFolder));
  const file = path.join(root, fileName);
  assertFolder();
  try {
    // What a crash has left of an earlier one.
    await removeFile(file);
    await writeNewFile(file, bytes);
  } finally {
    await removeFile(file);
  }
}

/**
 * Says whether the lake refuses to be written now, for want of room or of a right: whoever fails meanwhile can only
 * wait.
 */
export async function refusesWrites(lakeDir: string, assertFolder: () => void): Promise<boolean> {
  try {
    await tryWrite(lakeDir, assertFolder);
    return false;
  } catch (error) {
    return isSystemError(error, 'EROFS', 'EACCES', 'EPERM', 'ENOSPC', 'EDQUOT');
  }
}
