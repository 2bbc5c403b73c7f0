import { statSync } from 'node:fs';
import { AppError, describeError, isSystemError } from './errors.ts';
import type { Logger } from './logger.ts';

/** How often the file is looked at: a change by another process is promised to take effect within a second. */
const pollMs = 400;

/** What was last read from a file that other processes rewrite whole. */
export interface WatchedFile<T> {
  current(): T;
  close(): void;
}

/** What tells one version of a file from the next: every write is a new inode. */
function fingerprint(file: string): string {
  try {
    const { ino, mtimeMs, size } = statSync(file);
    return `${ino}:${mtimeMs}:${size}`;
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return 'none';
    throw error;
  }
}

/**
 * Reads a file with `load`, and again whenever it was rewritten. The first reading throws what `load` throws. Later, a
 * file that cannot be read, or is gone, is tried again at each look and logged once, and the last good reading stays in
 * force: no command removes such a file, so its absence is damage.
 */
export function watchFile<T>(file: string, load: () => T, logger: Logger): WatchedFile<T> {
  let seen = fingerprint(file);
  let value = load();
  let problem: string | undefined;

  const timer = setInterval(() => {
    try {
      const now = fingerprint(file);
      if (now === seen) return;
      if (now === 'none') throw new AppError('corrupt', `${file} is gone`, { hint: 'Restore it from a backup.' });
      value = load();
      seen = now;
      problem = undefined;
    } catch (error) {
      const told = problem;
      problem = describeError(error);
      if (problem !== told) logger.error({ file, error: problem }, 'file cannot be read, the last good reading stays in force');
    }
  }, pollMs).unref();

  return { current: () => value, close: () => clearInterval(timer) };
}
