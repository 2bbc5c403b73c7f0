import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Closers, Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { createTrouble } from './compact-status.ts';
import { createErasedIdsSearch, type FindErasedIds } from '../lake/find/erased-ids.ts';
import { lakePaths } from '../lake/lake.ts';
import { tryWrite as tryWriteLake } from '../lake/try-write.ts';

/**
 * Tries again and again whether the lake can be written. While events come, the flushes show it; where none do, a
 * service would call itself ready that cannot bring its next event into the lake.
 */
export interface WriteProbe extends Stoppable {
  /** That the lake cannot be written, and since when; also when a write has not returned for so long. */
  problems(): Problem[];
}

interface WriteProbeDependencies {
  /**
   * Writes to the lake and takes it back; throws what kept it from doing so. `folder_lost` says nothing of this lake.
   */
  readonly tryWrite: () => Promise<void>;
  readonly clock: Clock;
  readonly logger: Logger;
}

interface WriteProbeOptions {
  /** From the end of one try to the next, milliseconds. */
  readonly everyMs?: number;
  /** A failure that lasts for less is not reported, milliseconds. */
  readonly lastingMs?: number;
}

/** Often enough for whoever asks whether the service is ready, and rare enough to cost nothing beside it. */
const defaultEveryMs = 3000;

const todo =
  'Make its folders writable for the service: see whether the disk is full, or mounted read-only, and whose the folders are. It then goes on by itself; events are taken meanwhile, and wait in the stream while that has room.';

/** Starts the tries, the first after one interval: what a start writes has shown it. */
export function startWriteProbe(
  { tryWrite, clock, logger }: WriteProbeDependencies,
  { everyMs = defaultEveryMs, lastingMs }: WriteProbeOptions = {},
): WriteProbe {
  const trouble = createTrouble(clock, lastingMs);
  let failing = false;

  async function look(): Promise<void> {
    // A disk that hangs throws nothing: the write that has not returned is what there is to report.
    if (!failing)
      trouble.note(
        new AppError('disk', 'a write has not returned', {
          hint: 'See whether the disk, or the server that it is on, still answers.',
        }),
      );
    try {
      await tryWrite();
      if (failing) logger.info({}, 'the lake can be written again');
      failing = false;
      trouble.clear();
    } catch (error) {
      if (isAppError(error, 'folder_lost')) {
        // The supervisor reports it, and ends this process.
        if (!failing) trouble.clear();
        return;
      }
      trouble.note(error);
      if (!failing) logger.warn({ error: describeError(error) }, 'the lake cannot be written, will retry');
      failing = true;
    }
  }

  const loop = startPollLoop(look, { everyMs, onError: (error) => trouble.note(error), pausesFirst: true });
  return {
    problems() {
      const found = trouble.find();
      return found === undefined
        ? []
        : [{ code: 'lake_unwritable', what: `the lake cannot be written since ${found.since}: ${found.error}`, todo }];
    },
    stop: () => loop.stop(),
  };
}

/** An unchanged file costs a look at it and at the newest commit, milliseconds. */
const erasedIdsEveryMs = 5000;

/** Watches the file of the hashes of erased ids, without which nobody can say that an event has never come; the first look is at once. What else keeps the lake from being read is reported by the loops that need it. */
function watchErasedIds(find: FindErasedIds) {
  let found: Problem[] = [];

  async function look(): Promise<void> {
    try {
      await find();
      found = [];
    } catch (error) {
      if (!isAppError(error, 'file_damaged')) return;
      found = [{ code: 'erased_ids_damaged', what: error.message, todo: error.hint ?? '' }];
    }
  }

  const loop = startPollLoop(look, { everyMs: erasedIdsEveryMs, onError: () => undefined });
  return { notices: () => found, stop: () => loop.stop() };
}

/** Watches what no loop would notice: whether the lake can be written, and the hashes of erased ids. */
export function startLakeWatches(
  closers: Closers,
  { dir, assertFolder }: { readonly dir: string; readonly assertFolder: () => void },
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
) {
  const paths = lakePaths(dir);
  const writeProbe = startWriteProbe({ tryWrite: () => tryWriteLake(paths.root, assertFolder), clock, logger });
  closers.add('write probe', () => writeProbe.stop());
  const erasedIds = watchErasedIds(createErasedIdsSearch(paths));
  closers.add('erased ids', () => erasedIds.stop());
  return { problems: () => writeProbe.problems(), notices: () => erasedIds.notices() };
}
