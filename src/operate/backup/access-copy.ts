import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import type { AccessPaths } from '../../access/access-file.ts';
import { isSystemError } from '../../runtime/errors.ts';
import { waitForLock } from '../../runtime/files/lock.ts';
import type { BackupFolder } from './backup-folder.ts';
import type { BackupFile } from './backup-manifest.ts';

const lockWaitMs = 30_000;

/**
 * Copies the access data with the keys that it needs, as they are at one moment: under the lock of whoever changes
 * them.
 */
export async function copyAccess(target: BackupFolder, { access, keys }: AccessPaths): Promise<BackupFile[]> {
  if (!existsSync(keys)) return [];
  const lock = await waitForLock(keys, 'a backup', lockWaitMs);
  try {
    const files: BackupFile[] = [];
    try {
      files.push({ path: path.basename(access), ...(await target.put(access)) });
    } catch (error) {
      if (!isSystemError(error, 'ENOENT')) throw error;
    }
    // Whatever is a key, now or in a later version; temporaries and the lock's own file are none.
    const names = (await readdir(keys, { withFileTypes: true })).filter(
      (entry) => entry.isFile() && !entry.name.startsWith('.') && !entry.name.endsWith('.tmp'),
    );
    for (const { name } of names)
      files.push({ path: path.posix.join(path.basename(keys), name), ...(await target.put(path.join(keys, name))) });
    return files;
  } finally {
    lock.release();
  }
}
