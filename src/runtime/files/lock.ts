import { spawnSync } from 'node:child_process';
import { closeSync, constants, fstatSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { AppError, describeError, isAppError } from '../errors.ts';
import { findFolderId, folderIdOf } from './folder-id.ts';
import { makeFolderSync } from './make-folder.ts';
import { findProcessStart, isSameProcess } from '../processes/procfs.ts';
import { retry } from '../async/retry.ts';

const retryEveryMs = 100;
/** How long the helper may take: some network file systems answer when their server does. */
const helperMs = 10_000;
/** The folder may be replaced between its opening and its locking: then the one that is there now is tried. */
const openings = 10;

/** A lock held by this process; the kernel drops it when the last process that has the descriptor ends. */
export interface Lock {
  /** The locked descriptor. A child that inherits it keeps the lock alive after this process is gone. */
  readonly fd: number;
  /**
   * Throws `folder_lost` when the folder at the path is no longer the locked one: it was moved, removed or replaced.
   */
  assertHeld(): void;
  release(): void;
}

/** The name of the holder, for whoever is refused. The lock itself needs no file: this one may be missing. */
const holderFile = (folder: string): string => path.join(folder, '.lock');

interface Holder {
  /** The holder's name in the error of whoever is refused. */
  readonly text: string;
  readonly pid: number;
  readonly processStart: string | undefined;
}

function findHolder(folder: string): Holder | undefined {
  try {
    const [text = '', processStart] = readFileSync(holderFile(folder), 'utf8').trim().split('\n');
    const pid = /\(pid (\d+)\)$/.exec(text)?.[1];
    return pid === undefined ? undefined : { text, pid: Number(pid), processStart };
  } catch {
    return undefined;
  }
}

/**
 * Writes who holds the lock. Without it the lock is as good: a full disk must not keep anyone from taking it. The error
 * of whoever is refused then names "another process".
 */
function writeHolder(folder: string, holder: string, onUnnamed?: (error: unknown) => void): void {
  try {
    writeFileSync(holderFile(folder), `${holder} (pid ${process.pid})\n${findProcessStart(process.pid) ?? ''}\n`, {
      mode: 0o600,
    });
  } catch (error) {
    onUnnamed?.(error);
  }
}

/** Locks a descriptor of a folder, or of a file; false when another holds the lock. */
export function lockDescriptor(fd: number, place: string): boolean {
  const result = spawnSync('flock', ['-x', '-n', '3'], {
    stdio: ['ignore', 'ignore', 'pipe', fd],
    timeout: helperMs,
    killSignal: 'SIGKILL',
  });
  if (result.status === 0 || result.status === 1) return result.status === 0;
  throw new AppError(
    'start_failed',
    `cannot lock ${place}: ${result.error === undefined ? String(result.stderr).trim() : describeError(result.error)}`,
    {
      hint: 'Install util-linux (it has the flock command), and keep the data on a local file system: network file systems do not lock folders.',
      retryable: false,
    },
  );
}

/** Opens and locks the folder that is at the path when this returns; undefined when another holds its lock. */
function openLocked(folder: string): number | undefined {
  for (let opening = 0; opening < openings; opening += 1) {
    makeFolderSync(folder);
    const fd = openSync(folder, constants.O_RDONLY | constants.O_DIRECTORY);
    let isOurs = false;
    try {
      if (!lockDescriptor(fd, folder)) return undefined;
      isOurs = folderIdOf(fstatSync(fd)) === findFolderId(folder);
      if (isOurs) return fd;
    } finally {
      if (!isOurs) closeSync(fd);
    }
  }
  throw new AppError('folder_lost', `the folder ${folder} is replaced again and again`, {
    hint: 'Stop what replaces it, then repeat the command.',
  });
}

/** Says whether anybody holds the lock of a folder. One that is not there is not made: nobody holds it. */
export function isLocked(folder: string): boolean {
  if (findFolderId(folder) === undefined) return false;
  const fd = openLocked(folder);
  if (fd !== undefined) closeSync(fd);
  return fd === undefined;
}

/**
 * Takes the exclusive lock of a folder, which is made when it is missing, or refuses with `locked`, naming the holder.
 * The lock is on the folder itself (flock(2) on its inode): no file can be removed that would end it, and every path to
 * the folder, by symlink or bind mount, meets the same lock. Node has no flock(2) of its own, so util-linux's `flock`
 * locks the descriptor it inherits: the lock belongs to the open file description that this process keeps, survives the
 * helper, and ends with the process, `kill -9` included. No stale lock can be left behind. `onUnnamed` takes the error
 * of writing down who holds it.
 */
export function acquireLock(folder: string, holder: string, onUnnamed?: (error: unknown) => void): Lock {
  const fd = openLocked(folder);
  if (fd === undefined) {
    throw new AppError('locked', `${folder} is in use by ${findHolder(folder)?.text ?? 'another process'}`, {
      hint: 'Stop that one first, or use another data folder.',
    });
  }
  const id = folderIdOf(fstatSync(fd));
  writeHolder(folder, holder, onUnnamed);
  return {
    fd,
    assertHeld() {
      if (findFolderId(folder) !== id)
        throw new AppError(
          'folder_lost',
          `the folder ${folder} was taken from under ${holder}: it was moved, removed or replaced`,
          { hint: 'Put it back.' },
        );
    },
    release: () => closeSync(fd),
  };
}

/** Takes a lock as `acquireLock` does, waiting up to `waitMs` for its holder to finish. */
export async function waitForLock(folder: string, holder: string, waitMs: number): Promise<Lock> {
  return await retry(async () => acquireLock(folder, holder), {
    forMs: waitMs,
    everyMs: retryEveryMs,
    retryable: (error) => isAppError(error, 'locked'),
  });
}

export interface TakeOverOptions {
  readonly waitMs: number;
  /** Ends the wait. */
  readonly signal?: AbortSignal;
  /** Throws when the holder is known to run, by what says more than the lock's own text. */
  readonly assertFree?: () => void;
}

/**
 * Takes over the lock of a long-lived holder: refuses at once while that one runs, and waits up to `waitMs` where it
 * has just ended and a child that inherited the lock is still on its way out.
 */
export async function takeOverLock(
  folder: string,
  holder: string,
  { waitMs, signal, assertFree }: TakeOverOptions,
): Promise<Lock> {
  let isHolderAlive = false;
  const attempt = async (): Promise<Lock> => {
    isHolderAlive = true;
    assertFree?.();
    try {
      return acquireLock(folder, holder);
    } catch (error) {
      const first = findHolder(folder);
      isHolderAlive = first !== undefined && isSameProcess(first.pid, first.processStart);
      throw error;
    }
  };
  const retryable = (error: unknown): boolean => isAppError(error, 'locked') && !isHolderAlive;
  return await retry(attempt, {
    forMs: waitMs,
    everyMs: retryEveryMs,
    retryable,
    ...(signal === undefined ? {} : { signal }),
  });
}

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
