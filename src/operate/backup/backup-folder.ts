import { randomUUID } from 'node:crypto';
import { link, mkdir, readdir, rename, rm } from 'node:fs/promises';
import { isSystemError, AppError, describeError, isAppError } from '../../runtime/errors.ts';
import path from 'node:path';
import { ensureFolder, removeFile, syncFile, syncFolders } from '../../runtime/files/durable-file.ts';
import { makeFolder } from '../../runtime/files/make-folder.ts';
import { acquireLock, type Lock } from '../../runtime/files/lock.ts';
import type { Logger } from '../../runtime/logger.ts';
import {
  findManifest,
  writeManifest,
  type BackupFile,
  type BackupManifest,
  type StoredBytes,
  readPieces,
  writePieces,
  findStored,
  isSame,
} from './backup-manifest.ts';

/**
 * The folder that a backup is made into: bytes under their own hash (`files/ab/ab12...`), and the manifest that says
 * which file of the data folder each is. A file that has not changed is kept as it lies there; nothing that the
 * manifest in force names is touched before the next one is, so that an interrupted run leaves the backup before it
 * whole.
 */
export interface BackupFolder {
  readonly dir: string;
  /** The backup in force; undefined: none was finished here. */
  readonly manifest: BackupManifest | undefined;
  /**
   * Stores the bytes of a file as one of the data folder, unless they are there already: those are read and compared
   * first. `expected`: what they must be. ENOENT of the file as it is; `file_damaged` when it holds other bytes than
   * expected.
   */
  put(place: string, source: string, expected?: StoredBytes, mayLink?: boolean): Promise<BackupFile>;
  /** The same, of a file that may be gone: nothing then. */
  putIfThere(place: string, source: string): Promise<BackupFile[]>;
  /** Stores bytes that are written piece by piece. */
  write(pieces: AsyncIterable<Uint8Array>): Promise<StoredBytes>;
  /** A path in the folder for work in hand; gone when the folder is closed. */
  workPath(name: string): string;
  /** Writes the manifest, then removes what it does not name. Returns how many went. */
  finish(manifest: Omit<BackupManifest, 'format' | 'program'>): Promise<number>;
  close(): Promise<void>;
}

interface BackupFolderOptions {
  /** Locked instead of a folder on a file system that knows no locks. */
  readonly spareLock: string;
  readonly logger: Logger;
}

/** Throws `stopping` once the backup is to end. */
export function assertGoingOn(signal: AbortSignal): void {
  if (signal.aborted)
    throw new AppError('stopping', 'the backup was stopped', { hint: 'One that the folder held before is whole.' });
}

/** What a backup's folder may hold: anything else is somebody else's. */
const ownNames = /^(files|work|manifest\.json(\.[\w.]+\.tmp)?|\.lock|lost\+found)$/;

/** Path of stored bytes in a backup's folder. */
export function storedPath(dir: string, sha256: string): string {
  return path.join(dir, 'files', sha256.slice(0, 2), sha256);
}

/**
 * Locks a backup's folder, or the spare one where its file system knows no locks. Errors: `locked`; `start_failed`
 * without a spare one.
 */
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
    throw new AppError('locked', error.message, { hint: 'Wait for that one to end, or name another folder.' });
  }
}

/** Refuses a folder with anything that is not a backup's: a mistyped path must not fill somebody's folder. */
async function assertOwnFolder(dir: string): Promise<void> {
  const strange = (await readdir(dir)).find((name) => !ownNames.test(name));
  if (strange === undefined) return;
  throw new AppError('usage', `${dir} holds other things than a backup (${strange})`, {
    hint: 'Name a new folder, or an empty one.',
  });
}

/** Links a file into the folder; false where the two lie on different file systems, or links are not allowed. */
async function tryLink(source: string, target: string): Promise<boolean> {
  try {
    await link(source, target);
    return true;
  } catch (error) {
    if (isSystemError(error, 'EXDEV', 'EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'EMLINK', 'ENOSYS')) return false;
    throw error;
  }
}

/** Reads the manifest in force. One that is damaged keeps nobody from making a new backup: it is as good as none. */
async function findInForce(dir: string, logger: Logger): Promise<BackupManifest | undefined> {
  try {
    return await findManifest(dir);
  } catch (error) {
    if (!isAppError(error, 'backup_damaged')) throw error;
    logger.warn(
      { error: describeError(error) },
      'the backup that was there cannot be restored; a new one takes its place',
    );
    return undefined;
  }
}

/** Removes what a killed run has left. */
async function removeLeftovers(dir: string): Promise<void> {
  await rm(path.join(dir, 'work'), { recursive: true, force: true });
  for (const name of await readdir(dir)) if (name.endsWith('.tmp')) await removeFile(path.join(dir, name));
}

/**
 * Locks the folder, and makes what a run needs in it; `work` is the one run's own. Gives the lock and the manifest in
 * force.
 */
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
    await mkdir(path.join(dir, 'work'), { mode: 0o700 });
    await ensureFolder(path.join(dir, 'files'));
    return { lock, manifest };
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** The bytes that a backup's folder holds, each under its own hash. */
interface StoredFiles {
  /** Says whether bytes are there and whole: those that this run has not seen yet are read and compared. */
  isKept(expected: StoredBytes): Promise<boolean>;
  /** Gives bytes in the work folder their place. */
  keep(temporary: string, stored: StoredBytes): Promise<StoredBytes>;
  /** Makes the names of what was kept, and removed, durable. */
  sync(): Promise<void>;
  /** Removes, durably, what is not among the hashes; returns how many went. */
  removeUnnamed(named: ReadonlySet<string>): Promise<number>;
}

function openStoredFiles(dir: string, logger: Logger): StoredFiles {
  const files = path.join(dir, 'files');
  const changed = new Set<string>();
  /** Hashes of what was read, or written, by this run and is whole. */
  const whole = new Set<string>();

  async function isKept(expected: StoredBytes): Promise<boolean> {
    const file = storedPath(dir, expected.sha256);
    if (whole.has(expected.sha256)) return true;
    const found = await findStored(file);
    if (found === undefined) return false;
    if (isSame(found, expected)) whole.add(expected.sha256);
    else logger.warn({ file }, 'a file of the backup is damaged and is made anew');
    return whole.has(expected.sha256);
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
      await rename(temporary, file);
      changed.add(path.dirname(file));
      whole.add(stored.sha256);
      return stored;
    },
    async removeUnnamed(named) {
      let removed = 0;
      for (const shard of await readdir(files)) {
        const folder = path.join(files, shard);
        for (const name of await readdir(folder)) {
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

/** Copies a file, or links it where that is allowed, to a temporary, durably, and says what it holds. */
async function copyFile(
  source: string,
  temporary: string,
  expected: StoredBytes | undefined,
  mayLink: boolean,
): Promise<StoredBytes> {
  const linked = mayLink && (await tryLink(source, temporary));
  const stored = linked ? await findStored(temporary) : await writePieces(readPieces(source), temporary);
  if (stored === undefined)
    throw new AppError('folder_lost', `${temporary} was removed while it was written`, {
      hint: 'Let nothing else write to the folder of the backup, and repeat it.',
    });
  if (linked) await syncFile(temporary);
  if (expected !== undefined && !isSame(stored, expected)) {
    throw new AppError('file_damaged', `${source} is damaged: its bytes are not those that were written`, {
      hint: "Restore it from a backup that has it; 'tributary lake check' lists every damaged file of the lake.",
    });
  }
  return stored;
}

/**
 * Opens, and makes where it is missing, the folder of a backup; one run at a time. Errors: `locked`, `usage` when it
 * holds other things, `data_format`.
 */
export async function openBackupFolder(dir: string, options: BackupFolderOptions): Promise<BackupFolder> {
  const { lock, manifest } = await prepare(dir, options);
  const files = openStoredFiles(dir, options.logger);
  const work = path.join(dir, 'work');

  /** Keeps what `make` writes to a temporary. */
  async function keepMade(make: (temporary: string) => Promise<StoredBytes>): Promise<StoredBytes> {
    const temporary = path.join(work, randomUUID());
    try {
      return await files.keep(temporary, await make(temporary));
    } finally {
      await removeFile(temporary);
    }
  }

  async function put(place: string, source: string, expected?: StoredBytes, mayLink = false): Promise<BackupFile> {
    if (expected !== undefined && (await files.isKept(expected))) return { path: place, ...expected };
    return { path: place, ...(await keepMade((temporary) => copyFile(source, temporary, expected, mayLink))) };
  }

  return {
    dir,
    manifest,
    workPath: (name) => path.join(work, name),
    put,
    putIfThere: async (place, source) =>
      put(place, source).then(
        (file) => [file],
        (error: unknown) => {
          if (!isSystemError(error, 'ENOENT')) throw error;
          return [];
        },
      ),
    write: (pieces) => keepMade((temporary) => writePieces(pieces, temporary)),
    async finish(next) {
      await files.sync();
      await writeManifest(dir, next);
      const named = [...next.files, ...(next.tail === undefined ? [] : [next.tail])];
      return files.removeUnnamed(new Set(named.map(({ sha256 }) => sha256)));
    },
    async close() {
      await rm(work, { recursive: true, force: true });
      lock.release();
    },
  };
}
