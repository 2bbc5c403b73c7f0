import path from 'node:path';
import { removeFile, writeNewFile } from '../runtime/files/durable-file.ts';
import { assertWritableFolder } from '../runtime/files/file-checks.ts';
import { isStoreError, isSystemError } from '../runtime/errors.ts';
import { lakeStore } from './files/data-file.ts';
import { lakePaths } from './lake.ts';
import { logFolder } from './log/log-files.ts';

/** In the lake's folder, which readers do not list. The next start, or the next test, removes it after a crash. */
const fileName = '.write-probe.tmp';
/** A whole block: on a full disk, a few bytes may fit into the inode. */
const bytes = Buffer.alloc(4096);

/**
 * Tests whether a flush can write: a file, its fsync, and folder permissions; without folders, an object. Errors: the
 * store's.
 */
export async function checkWritable(lakeDir: string, assertFolder: () => void): Promise<void> {
  const { root, table, young, failed, staging } = lakePaths(lakeDir);
  const store = lakeStore(root);
  assertFolder();
  if (store.folder === undefined) {
    await store.note(fileName, bytes);
    return await store.remove([fileName]);
  }
  // In parallel: sequential calls would keep waking an idle process.
  await Promise.all([root, table, logFolder(table), young, failed, staging].map(assertWritableFolder));
  const file = path.join(root, fileName);
  assertFolder();
  try {
    await removeFile(file);
    await writeNewFile(file, bytes);
  } finally {
    await removeFile(file);
  }
}

/** Reports whether the lake has no space or no write permission, or is away, so that failing work can only wait. */
export async function isUnwritable(lakeDir: string, assertFolder: () => void): Promise<boolean> {
  try {
    await checkWritable(lakeDir, assertFolder);
    return false;
  } catch (error) {
    return isStoreError(error) || isSystemError(error, 'EROFS', 'EACCES', 'EPERM', 'ENOSPC', 'EDQUOT');
  }
}
