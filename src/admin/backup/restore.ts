/**
 * The restore: makes a new data folder from a backup.
 *
 * In: a backup with its manifest. Out: a data folder that a service can be started on, with every event of the backup
 * in its lake once. It has no claim on a stream and no broker's store: it is a separate service from the first start.
 * Order: the folder is marked as unfinished (runtime/files/data-format.ts); the files are copied and compared with
 * their hashes; the tail of the stream is committed to the lake; the mark is removed.
 * Crash: no command and no start works on an unfinished folder; the next restore into it starts over.
 */
import path from 'node:path';
import { rotateSessionKey } from '../../access/session-key.ts';
import { findDataFormat, writeDataFormat } from '../../runtime/files/data-format.ts';
import { ensureFolder, ensureFolders, syncFolders } from '../../runtime/files/durable-file.ts';
import { AppError, describeError, isAppError, isSystemError } from '../../runtime/errors.ts';
import { isWithin } from '../../runtime/files/folder-id.ts';
import { listNames } from '../../runtime/files/folder-names.ts';
import { removeTree } from '../../runtime/files/work-files.ts';
import { acquireLock } from '../../runtime/files/lock.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { StreamReader } from '../../stream/stream.ts';
import { lockBackup, storedPath } from './backup-folder.ts';
import {
  findManifest,
  summarize,
  type BackupAnswer,
  type BackupManifest,
  hashFileIfExists,
  isSame,
  writeStored,
} from './backup-manifest.ts';
import { openBacklogReader } from './stream-backlog.ts';
import { streamFile } from '../../runtime/files/input-file.ts';

interface RestoreOptions {
  /**
   * Completes the restored lake: commits the tail, if any, and drops rewrites that wait for readers of the original.
   */
  readonly completeLake: (manifest: BackupManifest, tail: StreamReader | undefined) => Promise<void>;
  readonly signal: AbortSignal;
  readonly logger: Logger;
}

/** Names that a new folder may contain: those of a file system's root, and of a lock. */
const emptyNames = ['lost+found', '.lock'];
/** Maximum number of damaged files that an error names. */
const namedFiles = 5;

async function getManifest(dir: string): Promise<BackupManifest> {
  const manifest = await findManifest(dir);
  if (manifest !== undefined) return manifest;
  throw new AppError('not_found', `${dir} has no finished backup`, {
    hint: "Pass the folder of a finished 'tributary backup'.",
  });
}

async function clear(folder: string, keep: readonly string[] = emptyNames): Promise<void> {
  for (const name of await listNames(folder)) if (!keep.includes(name)) await removeTree(path.join(folder, name));
}

/** Rejects a folder with contents, except those of an interrupted restore. */
async function assertNew(dataDir: string): Promise<void> {
  const names = (await listNames(dataDir)).filter((name) => !emptyNames.includes(name));
  const found = names.length === 0 ? undefined : findDataFormat(dataDir);
  if (names.length === 0 || (found?.restoring === true && found.movedFrom === undefined)) return;
  throw new AppError('conflict', `${dataDir} is not empty`, {
    hint: 'Pass a new folder; a restore never overwrites files.',
  });
}

/** Copies and verifies every file. Error: `backup_damaged`, which names damaged files. */
async function copyFiles(
  dir: string,
  dataDir: string,
  { files, tail }: BackupManifest,
  signal: AbortSignal,
): Promise<void> {
  const folders = new Set(files.map((file) => path.dirname(path.join(dataDir, file.path))));
  await ensureFolders(folders);
  const damaged: string[] = [];
  for (const file of files) {
    if (signal.aborted)
      throw new AppError('stopping', 'the restore was stopped', { hint: 'Run the restore again; it starts over.' });
    const source = storedPath(dir, file.sha256);
    try {
      if (!isSame(await writeStored(streamFile(source), path.join(dataDir, file.path)), file)) damaged.push(file.path);
    } catch (error) {
      if (!isSystemError(error, 'ENOENT')) throw error;
      damaged.push(file.path);
    }
  }
  if (tail !== undefined && !isSame(await hashFileIfExists(storedPath(dir, tail.sha256)), tail))
    damaged.push('the tail of the stream');
  await syncFolders(folders);
  if (damaged.length === 0) return;
  const others = damaged.length > namedFiles ? ` and ${damaged.length - namedFiles} more` : '';
  throw new AppError(
    'backup_damaged',
    `the backup in ${dir} is damaged: ${damaged.slice(0, namedFiles).join(', ')}${others} failed checksum verification`,
    {
      hint: 'Restore another copy of the backup; or, if the original exists, back it up again to replace damaged files.',
    },
  );
}

async function restoreInto(dir: string, dataDir: string, options: RestoreOptions): Promise<BackupAnswer> {
  // Again, now under the lock.
  const manifest = await getManifest(dir);
  const { folderFormat: format, tail } = manifest;
  await writeDataFormat(dataDir, { format, restoring: true });
  try {
    await clear(dataDir, [...emptyNames, 'format.json']);
    await copyFiles(dir, dataDir, manifest, options.signal);
    // A session that was signed out after the backup must not become valid again.
    if (manifest.files.some((file) => file.path === 'keys/sessions.key'))
      await rotateSessionKey(path.join(dataDir, 'keys'));
    const reader = tail === undefined ? undefined : await openBacklogReader(storedPath(dir, tail.sha256), tail.stream);
    try {
      await options.completeLake(manifest, reader);
    } finally {
      await reader?.close();
    }
    await writeDataFormat(dataDir, { format });
  } catch (error) {
    await clear(dataDir).catch((left: unknown) =>
      options.logger.warn({ error: describeError(left) }, 'cannot remove the unfinished restore'),
    );
    throw error;
  }
  const summary = summarize(manifest);
  options.logger.info(
    { dataDir, ...summary, madeAt: manifest.madeAt, messagesInTail: tail?.messages ?? 0 },
    'backup restored',
  );
  return summary;
}

/** Locks the backup against a run that renews it, unless its file system is read-only or has no locks. */
function lockIfPossible(dir: string): { release(): void } {
  try {
    return lockBackup(dir, 'a restore');
  } catch (error) {
    if (!isSystemError(error, 'EROFS', 'EACCES') && !isAppError(error, 'start_failed')) throw error;
    return { release: () => undefined };
  }
}

/**
 * Restores the backup in `dir` into a new folder, which is empty after an error. Errors: `not_found` (no finished
 * backup), `conflict` (the folder is not empty), `data_format`, `locked`, `backup_damaged`, `disk`.
 */
export async function restoreBackup(dir: string, dataDir: string, options: RestoreOptions): Promise<BackupAnswer> {
  await getManifest(dir);
  if ((await isWithin(dataDir, dir)) || (await isWithin(dir, dataDir)))
    throw new AppError('usage', `the backup ${dir} and the folder ${dataDir} overlap`, {
      hint: 'Pass a folder elsewhere.',
    });
  try {
    await ensureFolder(dataDir);
    await assertNew(dataDir);
    const source = lockIfPossible(dir);
    try {
      const lock = acquireLock(dataDir, 'a restore');
      try {
        return await restoreInto(dir, dataDir, options);
      } finally {
        lock.release();
      }
    } finally {
      source.release();
    }
  } catch (error) {
    if (isAppError(error) || !isSystemError(error, 'ENOSPC', 'EDQUOT', 'EIO', 'EROFS', 'EACCES', 'EPERM')) throw error;
    throw new AppError('disk', `cannot finish the restore into ${dataDir}`, {
      cause: error,
      hint: 'Remove the cause, such as a full disk, and run the restore again; it starts over.',
      retryable: false,
    });
  }
}
