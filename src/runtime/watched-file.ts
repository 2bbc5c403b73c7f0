import { statSync } from 'node:fs';
import { AppError, describeError, isSystemError } from './errors.ts';
import type { Logger } from './logger.ts';

/** How often the file is looked at: a change by another process is promised to take effect within a second. */
const pollMs = 400;

/** What was last read from a file that other processes rewrite whole. */
export interface WatchedFile<T> {
  current(): T;
  /** Why the newest reading failed; undefined while the last one is what the file says. */
  problem(): string | undefined;
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
 * Reads a file with `load`, and again whenever it, or another file that `load` reads (`beside`), was rewritten. The first reading throws what `load` throws. Later, a
 * file that cannot be read, or is gone, is tried again at each look and logged once, and the last good reading stays in
 * force: no command removes such a file, so its absence is damage.
 */
export function watchFile<T>(file: string, load: () => T, logger: Logger, beside: readonly string[] = []): WatchedFile<T> {
  const look = (): string => [file, ...beside].map(fingerprint).join();
  let seen = look();
  let value = load();
  let problem: string | undefined;

  const timer = setInterval(() => {
    try {
      const now = look();
      if (now === seen) {
        problem = undefined;
        return;
      }
      if (fingerprint(file) === 'none') throw new AppError('corrupt', `${file} is gone`, { hint: 'Restore it from a backup.' });
      value = load();
      seen = now;
      problem = undefined;
    } catch (error) {
      const told = problem;
      problem = describeError(error);
      if (problem !== told) logger.error({ file, error: problem }, 'file cannot be read, the last good reading stays in force');
    }
  }, pollMs).unref();

  return { current: () => value, problem: () => problem, close: () => clearInterval(timer) };
}
