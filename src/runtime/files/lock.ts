import { spawnSync } from 'node:child_process';
import { closeSync, constants, fstatSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { AppError, describeError, isAppError } from '../errors.ts';
import { findFolderId, folderIdOf } from './folder-id.ts';
import { makeFolderSync } from './make-folder.ts';
import { findProcessStart, isSameProcess } from '../processes/procfs.ts';
import { retry } from '../async/retry.ts';

const retryEveryMs = 100;
/** Timeout of the helper: network file systems may respond slowly. */
const helperMs = 10_000;
/** Attempts to lock the folder at a path, which may be replaced between opening and locking. */
const openings = 10;

/** A lock held by this process. The kernel releases it when the last process with the descriptor ends. */
export interface Lock {
  /** The locked descriptor. A child that inherits it keeps the lock after this process ends. */
  readonly fd: number;
  /** Throws `folder_lost` if the folder at the path is no longer the locked one. */
  assertHeld(): void;
  release(): void;
}

/** Names the holder in errors. The lock itself needs no file. */
const holderFile = (folder: string): string => path.join(folder, '.lock');

interface Holder {
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

/** Writes the holder's name. The lock holds without it, also on a full disk; errors then name "another process". */
function writeHolder(folder: string, holder: string, onUnnamed?: (error: unknown) => void): void {
  try {
    writeFileSync(holderFile(folder), `${holder} (pid ${process.pid})\n${findProcessStart(process.pid) ?? ''}\n`, {
      mode: 0o600,
    });
  } catch (error) {
    onUnnamed?.(error);
  }
}

function lockDescriptor(fd: number, name: string): boolean {
  const result = spawnSync('flock', ['-x', '-n', '3'], {
    stdio: ['ignore', 'ignore', 'pipe', fd],
    timeout: helperMs,
    killSignal: 'SIGKILL',
  });
  if (result.status === 0 || result.status === 1) return result.status === 0;
  throw new AppError(
    'start_failed',
    `cannot lock ${name}: ${result.error === undefined ? String(result.stderr).trim() : describeError(result.error)}`,
    {
      hint: 'Install util-linux (it has the flock command), and keep the data on a local file system: network file systems do not lock folders.',
      retryable: false,
    },
  );
}

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
  throw new AppError('folder_lost', `the folder ${folder} keeps being replaced`, {
    hint: 'Stop the process that replaces it, then retry.',
  });
}

/** Reports whether any process has the lock of a folder. Does not create the folder. */
export function isLocked(folder: string): boolean {
  if (findFolderId(folder) === undefined) return false;
  const fd = openLocked(folder);
  if (fd !== undefined) closeSync(fd);
  return fd === undefined;
}

/**
 * Acquires the exclusive flock(2) lock of a folder, which is created if missing. Removing a file cannot release it.
 * Node has no flock(2), so util-linux's `flock` locks an inherited descriptor; the lock ends with this process, also by
 * `kill -9`. `onUnnamed` gets the error of writing the holder's name. Error: `locked`, with the holder.
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
        throw new AppError('folder_lost', `the folder ${folder} was moved, removed or replaced while ${holder} ran`, {
          hint: 'Restore it.',
        });
    },
    release: () => closeSync(fd),
  };
}

/** Changes of a table take seconds: a command waits this long for another one, ms. */
const maintenanceMs = 120_000;

/** Acquires a lock as `acquireLock` does; waits for its holder to finish. */
export async function waitForLock(folder: string, holder: string, waitMs = maintenanceMs): Promise<Lock> {
  return await retry(async () => acquireLock(folder, holder), {
    forMs: waitMs,
    everyMs: retryEveryMs,
    retryable: (error) => isAppError(error, 'locked'),
  });
}

export interface TakeOverOptions {
  readonly waitMs: number;
  readonly signal?: AbortSignal;
  /** Throws if the holder is known to run by other evidence than the lock's own text. */
  readonly assertFree?: () => void;
}

/** Acquires the lock of a long-lived holder: fails at once while it runs; waits `waitMs` for its children to end. */
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

/** Acquires the lock of an existing file, as `acquireLock` does for a folder. Errors: `locked`, the system's. */
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
