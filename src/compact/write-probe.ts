import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { createTrouble } from './compact-status.ts';

/**
 * Tries again and again whether the lake can be written. While events come, the flushes show it; where none do, a
 * service would call itself ready that cannot bring its next event into the lake.
 */
export interface WriteProbe extends Stoppable {
  /** That the lake cannot be written, and since when; also when a write has not returned for so long. */
  problems(): Problem[];
}

export interface WriteProbeDependencies {
  /**
   * Writes to the lake and takes it back; throws what kept it from doing so. `folder_lost` says nothing of this lake.
   */
  readonly tryWrite: () => Promise<void>;
  readonly clock: Clock;
  readonly logger: Logger;
}

export interface WriteProbeOptions {
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
