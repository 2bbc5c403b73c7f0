import { spawnSync } from 'node:child_process';
import { closeSync, ftruncateSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import path from 'node:path';
import { AppError, describeError } from './errors.ts';

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
  const result = spawnSync('flock', ['--exclusive', '--nonblock', '3'], { stdio: ['ignore', 'ignore', 'pipe', fd] });
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
  ftruncateSync(fd, 0);
  writeSync(fd, `${holder} (pid ${process.pid})\n`);
  return { fd, release: () => closeSync(fd) };
}

/** Takes a lock as `acquireLock` does, waiting up to `waitMs` for a holder that is on its way out. */
export async function waitForLock(file: string, holder: string, waitMs: number): Promise<Lock> {
  const deadline = performance.now() + waitMs;
  for (;;) {
    try {
      return acquireLock(file, holder);
    } catch (error) {
      if (!(error instanceof AppError && error.code === 'locked') || performance.now() >= deadline) throw error;
      await sleep(100);
    }
  }
}
