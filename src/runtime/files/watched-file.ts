import { watch, type FSWatcher } from 'node:fs';
import path from 'node:path';
import { startPollLoop } from '../async/poll-loop.ts';
import { AppError, describeError, isAppError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { findStamp } from './file-stamp.ts';

/**
 * How often the file is looked at, milliseconds, where the kernel tells of changes at once, and where it does not: a
 * change by another process is promised to take effect within a second, of which the larger part is then left for
 * reading a large file on a busy machine.
 */
const pollMs = { told: 500, untold: 200 } as const;

/** What was last read from a file that other processes rewrite whole. */
export interface WatchedFile<T> {
  current(): T;
  /** Why the newest reading failed; undefined while the last one is what the file says. */
  problem(): string | undefined;
  close(): void;
}

/** How a file is watched beside reading it. */
export interface WatchOptions<T> {
  /** Other files that `load` reads: a change of one of them is a change of the file. */
  readonly beside?: readonly string[];
  /** Makes the later readings; `load` by default. */
  readonly reload?: () => T | Promise<T>;
  /** Reports whether the first reading has failed, without an error: it is made again until one succeeds. */
  readonly isUnread?: () => boolean;
  /**
   * Called after each later reading, with the new value in force, and when what could not be read is again as it was.
   */
  readonly onChange?: () => void;
}

/** What the kernel tells of the folders of some files. */
interface Hearing {
  /**
   * Says whether it tells of all of them; asks it again for those of which it does not: a folder may have come meanwhile.
   * Of some it never does: it watches only so many for a user.
   */
  isTold(): boolean;
  close(): void;
}

/** Calls `onChange` when the kernel says that something happens in the folders of files. */
function hearChanges(files: readonly string[], onChange: () => void): Hearing {
  const folders = new Set(files.map((file) => path.dirname(file)));
  const watchers = new Map<string, FSWatcher>();

  function hear(folder: string): boolean {
    try {
      const watcher = watch(folder, { persistent: false }, onChange);
      watcher.on('error', () => void watchers.delete(folder));
      watchers.set(folder, watcher);
      return true;
    } catch {
      return false;
    }
  }

  return {
    isTold: () => [...folders].filter((folder) => !watchers.has(folder) && !hear(folder)).length === 0,
    close() {
      for (const watcher of watchers.values()) watcher.close();
    },
  };
}

/**
 * Reads a file with `load`, and again whenever it, or a file beside it, was rewritten. The first reading throws what
 * `load` throws. Later, a file that cannot be read, or is gone, is tried again at each look and logged once, and the
 * last good reading stays in force: no command removes such a file, so its absence is damage.
 */
export function watchFile<T>(
  file: string,
  load: () => T,
  logger: Logger,
  { beside = [], reload = load, isUnread = () => false, onChange }: WatchOptions<T> = {},
): WatchedFile<T> {
  const look = (): string => [file, ...beside].map((one) => findStamp(one) ?? 'none').join();
  const first = look();
  let value = load();
  let seen = isUnread() ? undefined : first;
  let problem: string | undefined;

  async function readAgain(now: string, signal: AbortSignal): Promise<void> {
    if (findStamp(file) === undefined)
      throw new AppError('record_damaged', `${file} is gone`, { hint: 'Restore it from a backup.' });
    const read = await reload();
    if (signal.aborted) return;
    value = read;
    // As it was before the reading: what was written meanwhile is read at the next look.
    seen = now;
    problem = undefined;
    onChange?.();
  }

  function lookAgain(signal: AbortSignal): Promise<void> | void {
    const now = look();
    if (now !== seen) return readAgain(now, signal);
    const wasUnreadable = problem !== undefined;
    problem = undefined;
    if (wasUnreadable) onChange?.();
  }

  function report(error: unknown): void {
    const reported = problem;
    problem = describeError(error);
    if (problem !== reported)
      logger.error({ file, error: problem }, 'file cannot be read, the last good reading stays in force');
  }

  const heard = hearChanges([file, ...beside], () => loop.wake());
  const everyMs = (): number => pollMs[heard.isTold() && problem === undefined ? 'told' : 'untold'];
  const loop = startPollLoop(lookAgain, { everyMs, onError: report, pausesFirst: true });
  return {
    current: () => value,
    problem: () => problem,
    close() {
      heard.close();
      // A reading under way is not waited for: its value is not used.
      void loop.stop();
    },
  };
}

/**
 * Watches a file as `watchFile` does, for a part of the service that may be down: a first reading that fails is a
 * problem too, and the value is undefined until a later one succeeds. Error: `folder_lost` of the first reading.
 */
export function watchOptionalFile<T>(
  file: string,
  load: () => T,
  logger: Logger,
  options: WatchOptions<T> = {},
): WatchedFile<T | undefined> {
  const { reload = load } = options;
  let missing: string | undefined;
  const readFirst = (): T | undefined => {
    try {
      return load();
    } catch (error) {
      if (isAppError(error, 'folder_lost')) throw error;
      missing = describeError(error);
      logger.error({ file, error: missing }, 'cannot read file, will retry when it changes');
      return undefined;
    }
  };
  const readLater = async (): Promise<T> => {
    const value = await reload();
    missing = undefined;
    return value;
  };
  // What keeps a file from being read, such as its owner, may change without a change of the file.
  const isUnread = (): boolean => missing !== undefined;
  const watched = watchFile<T | undefined>(file, readFirst, logger, { ...options, reload: readLater, isUnread });
  return { ...watched, problem: () => watched.problem() ?? missing };
}
