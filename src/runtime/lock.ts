import { spawnSync } from 'node:child_process';
import { closeSync, ftruncateSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs';
import path from 'node:path';
import { AppError, describeError, isAppError } from './errors.ts';
import { isProcessAlive } from './process-identity.ts';
import { retry } from './retry.ts';

const retryEveryMs = 100;

/** A lock held by this process; the kernel drops it when the last process that has the descriptor ends. */
export interface Lock {
  /** The locked descriptor. A child that inherits it keeps the lock alive after this process is gone. */
  readonly fd: number;
  release(): void;
}

/**
 * Takes the exclusive lock of a file, or refuses with `locked`, naming the holder. Node has no flock(2) of its own, so
 * util-linux's `flock` locks the descriptor it inherits: the lock belongs to the open file description that this process
 * keeps, survives the helper, and ends with the process, `kill -9` included. No stale lock can be left behind.
 */
export function acquireLock(file: string, holder: string): Lock {
  mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
  const fd = openSync(file, 'a+', 0o600);
  const result = spawnSync('flock', ['-x', '-n', '3'], { stdio: ['ignore', 'ignore', 'pipe', fd] });
  if (result.error !== undefined || (result.status !== 0 && result.status !== 1)) {
    closeSync(fd);
    throw new AppError('start_failed', `cannot lock ${file}: ${result.error === undefined ? String(result.stderr).trim() : describeError(result.error)}`, {
      hint: 'Install util-linux (it has the flock command) and use a local file system.',
      retryable: false,
    });
  }
  if (result.status === 1) {
    const first = readFileSync(file, 'utf8').trim() || 'another process';
    closeSync(fd);
    throw new AppError('locked', `${file} is in use by ${first}`, { hint: 'Stop that one first, or use another data folder.' });
  }
  try {
    ftruncateSync(fd, 0);
    writeSync(fd, `${holder} (pid ${process.pid})\n`);
  } catch (error) {
    closeSync(fd);
    throw new AppError('disk', `cannot write ${file}`, { cause: error, hint: 'Make room on the disk of the data folder.' });
  }
  return { fd, release: () => closeSync(fd) };
}

/** Says whether the process that a lock's text names still runs. */
function isHolderAlive(file: string): boolean {
  const pid = /\(pid (\d+)\)/.exec(readFileSync(file, 'utf8'))?.[1];
  return pid !== undefined && isProcessAlive(Number(pid));
}

/** Takes a lock as `acquireLock` does, waiting up to `waitMs` for its holder to finish. */
export async function waitForLock(file: string, holder: string, waitMs: number): Promise<Lock> {
  return await retry(async () => acquireLock(file, holder), { forMs: waitMs, everyMs: retryEveryMs, retryable: (error) => isAppError(error, 'locked') });
}

/**
 * Takes over the lock of a long-lived holder: refuses at once while that one runs, and waits up to `waitMs` where it has
 * just ended and a child that inherited the lock is still on its way out. An abort of `signal` ends the wait.
 */
export async function takeOverLock(file: string, holder: string, waitMs: number, signal?: AbortSignal): Promise<Lock> {
  const retryable = (error: unknown): boolean => isAppError(error, 'locked') && !isHolderAlive(file);
  return await retry(async () => acquireLock(file, holder), { forMs: waitMs, everyMs: retryEveryMs, retryable, ...(signal === undefined ? {} : { signal }) });
}
