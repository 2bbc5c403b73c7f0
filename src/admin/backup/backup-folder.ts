import { randomUUID } from 'node:crypto';
import { isSystemError, AppError, describeError, isAppError } from '../../runtime/errors.ts';
import path from 'node:path';
import { ensureFolder, moveFile, removeFile, syncFile, syncFolders } from '../../runtime/files/durable-file.ts';
import { tryLink } from '../../runtime/files/file-checks.ts';
import { listNames } from '../../runtime/files/folder-names.ts';
import { makeFolder } from '../../runtime/files/make-folder.ts';
import { acquireLock, type Lock } from '../../runtime/files/lock.ts';
import { makeWorkFolder, removeTree } from '../../runtime/files/work-files.ts';
import type { Logger } from '../../runtime/logger.ts';
import {
  findManifest,
  writeManifest,
  type BackupFile,
  type BackupManifest,
  type StoredBytes,
  hashFileIfExists,
  isSame,
  writeStored,
} from './backup-manifest.ts';
import { streamFile } from '../../runtime/files/input-file.ts';

/**
 * The folder of a backup: bytes under their own hash (`files/ab/ab12...`), and a manifest that maps paths of the data
 * folder to them. Files of the current manifest stay until the next one is written, so an interrupted run leaves the
 * previous backup intact.
 */
export interface BackupFolder {
  readonly dir: string;
  readonly manifest: BackupManifest | undefined;
  /** Stores the bytes of a file, unless an intact copy exists. Errors: ENOENT, `file_damaged` if not `expected`. */
  put(backupPath: string, source: string, expected?: StoredBytes, mayLink?: boolean): Promise<BackupFile>;
  /** As `put`; empty if the file does not exist. */
  putIfThere(backupPath: string, source: string): Promise<BackupFile[]>;
  write(pieces: AsyncIterable<Uint8Array>): Promise<StoredBytes>;
  /** Returns a path for work in progress, which is removed on close. */
  workPath(name: string): string;
  /** Writes the manifest, then removes unnamed bytes. Returns their number of files. */
  finish(manifest: Omit<BackupManifest, 'format' | 'program'>): Promise<number>;
  close(): Promise<void>;
}

interface BackupFolderOptions {
  /** Lock file for a file system without locks. */
  readonly spareLock: string;
  readonly logger: Logger;
}

export function throwIfStopped(signal: AbortSignal): void {
  if (signal.aborted)
    throw new AppError('stopping', 'the backup was stopped', {
      hint: 'Run the backup again; a previous backup in the folder is intact.',
    });
}

/** Names in the folder of a backup; all others are foreign. */
const ownNames = /^(files|work|manifest\.json(\.[\w.]+\.tmp)?|\.lock|lost\+found)$/;

export function storedPath(dir: string, sha256: string): string {
  return path.join(dir, 'files', sha256.slice(0, 2), sha256);
}

/** Locks the folder, or the spare file without locks. Errors: `locked`; `start_failed` without a spare file. */
export function lockBackup(dir: string, holder: string, spareLock?: string): Lock {
  try {
    try {
      return acquireLock(dir, holder);
    } catch (error) {
      if (!isAppError(error, 'start_failed') || spareLock === undefined) throw error;
      return acquireLock(spareLock, holder);
    }
  } catch (error) {
    if (!isAppError(error, 'locked')) throw error;
    throw new AppError('locked', error.message, { hint: 'Wait until it has finished, or pass another folder.' });
  }
}

/** Rejects a folder with other contents: a mistyped path must not fill a foreign folder. */
async function assertOwnFolder(dir: string): Promise<void> {
  const strange = (await listNames(dir)).find((name) => !ownNames.test(name));
  if (strange === undefined) return;
  throw new AppError('usage', `${dir} has other contents than a backup (${strange})`, {
    hint: 'Pass a new or empty folder.',
  });
}

/** Reads the current manifest. A damaged one counts as missing, so that a new backup can be made. */
async function findInForce(dir: string, logger: Logger): Promise<BackupManifest | undefined> {
  try {
    return await findManifest(dir);
  } catch (error) {
    if (!isAppError(error, 'backup_damaged')) throw error;
    logger.warn({ error: describeError(error) }, 'existing backup not restorable, replacing it');
    return undefined;
  }
}

async function removeLeftovers(dir: string): Promise<void> {
  await removeTree(path.join(dir, 'work'));
  for (const name of await listNames(dir)) if (name.endsWith('.tmp')) await removeFile(path.join(dir, name));
}

/** Locks the folder and creates its subfolders. Returns the lock and the current manifest. */
async function prepare(
  dir: string,
  { spareLock, logger }: BackupFolderOptions,
): Promise<{ readonly lock: Lock; readonly manifest: BackupManifest | undefined }> {
  await ensureFolder(dir);
  await assertOwnFolder(dir);
  const lock = lockBackup(dir, 'a backup', spareLock);
  try {
    const manifest = await findInForce(dir, logger);
    await removeLeftovers(dir);
    await makeWorkFolder(path.join(dir, 'work'));
    await ensureFolder(path.join(dir, 'files'));
    return { lock, manifest };
  } catch (error) {
    lock.release();
    throw error;
  }
}

interface StoredFiles {
  /** Reports whether intact bytes exist; reads and verifies each once per run. */
  isKept(expected: StoredBytes): Promise<boolean>;
  keep(temporary: string, stored: StoredBytes): Promise<StoredBytes>;
  sync(): Promise<void>;
  removeUnnamed(named: ReadonlySet<string>): Promise<number>;
}

function openStoredFiles(dir: string, logger: Logger): StoredFiles {
  const files = path.join(dir, 'files');
  const changed = new Set<string>();
  /** Hashes of bytes that this run has verified or written. */
  const verified = new Set<string>();

  async function isKept(expected: StoredBytes): Promise<boolean> {
    const file = storedPath(dir, expected.sha256);
    if (verified.has(expected.sha256)) return true;
    const found = await hashFileIfExists(file);
    if (found === undefined) return false;
    if (isSame(found, expected)) verified.add(expected.sha256);
    else logger.warn({ file }, 'file of the backup damaged, will be copied again');
    return verified.has(expected.sha256);
  }

  async function sync(): Promise<void> {
    await syncFolders(changed);
    changed.clear();
  }

  return {
    isKept,
    sync,
    async keep(temporary, stored) {
      if (await isKept(stored)) return stored;
      const file = storedPath(dir, stored.sha256);
      if ((await makeFolder(path.dirname(file))) !== undefined) changed.add(files);
      await moveFile(temporary, file);
      changed.add(path.dirname(file));
      verified.add(stored.sha256);
      return stored;
    },
    async removeUnnamed(named) {
      let removed = 0;
      for (const shard of await listNames(files)) {
        const folder = path.join(files, shard);
        for (const name of await listNames(folder)) {
          if (named.has(name)) continue;
          await removeFile(path.join(folder, name));
          changed.add(folder);
          removed += 1;
        }
      }
      await sync();
      return removed;
    },
  };
}

/** Copies or links a file to a temporary, durably. Returns size and hash. */
async function copyFile(
  source: string,
  temporary: string,
  expected: StoredBytes | undefined,
  mayLink: boolean,
): Promise<StoredBytes> {
  const linked = mayLink && (await tryLink(source, temporary));
  const stored = linked ? await hashFileIfExists(temporary) : await writeStored(streamFile(source), temporary);
  if (stored === undefined)
    throw new AppError('folder_lost', `${temporary} was removed while it was written`, {
      hint: 'Check for other programs that write to the folder of the backup, and run it again.',
    });
  if (linked) await syncFile(temporary);
  if (expected !== undefined && !isSame(stored, expected)) {
    throw new AppError('file_damaged', `${source} is damaged: checksum mismatch`, {
      hint: "Restore the file from an intact backup; 'tributary lake check' lists every damaged file of the lake.",
    });
  }
  return stored;
}

/**
 * Opens or creates the folder of a backup, for one run at a time. Errors: `locked`, `usage` if it has other contents,
 * `data_format`.
 */
export async function openBackupFolder(dir: string, options: BackupFolderOptions): Promise<BackupFolder> {
  const { lock, manifest } = await prepare(dir, options);
  const files = openStoredFiles(dir, options.logger);
  const work = path.join(dir, 'work');

  async function keepMade(make: (temporary: string) => Promise<StoredBytes>): Promise<StoredBytes> {
    const temporary = path.join(work, randomUUID());
    try {
      return await files.keep(temporary, await make(temporary));
    } finally {
      await removeFile(temporary);
    }
  }

  async function put(backupPath: string, source: string, expected?: StoredBytes, mayLink = false): Promise<BackupFile> {
    if (expected !== undefined && (await files.isKept(expected))) return { path: backupPath, ...expected };
    return { path: backupPath, ...(await keepMade((temporary) => copyFile(source, temporary, expected, mayLink))) };
  }

  return {
    dir,
    manifest,
    workPath: (name) => path.join(work, name),
    put,
    putIfThere: async (backupPath, source) =>
      put(backupPath, source).then(
        (file) => [file],
        (error: unknown) => {
          if (!isSystemError(error, 'ENOENT')) throw error;
          return [];
        },
      ),
    write: (pieces) => keepMade((temporary) => writeStored(pieces, temporary)),
    async finish(next) {
      await files.sync();
      await writeManifest(dir, next);
      const named = [...next.files, ...(next.tail === undefined ? [] : [next.tail])];
      return files.removeUnnamed(new Set(named.map(({ sha256 }) => sha256)));
    },
    async close() {
      await removeTree(work);
      lock.release();
    },
  };
}
