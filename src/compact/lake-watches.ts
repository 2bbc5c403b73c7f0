import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Closers } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { createRetryState } from './compact-status.ts';
import { createErasedIdsSearch, type FindErasedIds } from '../lake/event-index/erased-ids.ts';
import { lakePaths } from '../lake/lake.ts';
import { checkWritable as tryWriteLake } from '../lake/write-check.ts';

interface WriteProbeDependencies {
  /** Writes a file to the lake and removes it. `folder_lost` does not concern this lake. */
  readonly tryWrite: () => Promise<void>;
  readonly clock: Clock;
  readonly logger: Logger;
}

interface WriteProbeOptions {
  readonly everyMs?: number;
  readonly lastingMs?: number;
}

const action =
  'Check whether the disk is full or mounted read-only, and who owns the folders of the lake. Flushes then resume; until then, imports are accepted while the stream is below its limit.';

export type WriteProbe = ReturnType<typeof startWriteProbe>;

/** Tests every few seconds whether the lake is writable: an idle service would fail only at its next event. */
export function startWriteProbe(
  { tryWrite, clock, logger }: WriteProbeDependencies,
  { everyMs = 3000, lastingMs }: WriteProbeOptions = {},
) {
  const retryState = createRetryState(clock, lastingMs);
  let failing = false;

  async function check(): Promise<void> {
    // A hanging disk throws nothing: until the write returns, this is the failure.
    if (!failing)
      retryState.note(
        new AppError('disk', 'a write has not returned', {
          hint: 'Check whether the disk, or its file server, responds.',
        }),
      );
    try {
      await tryWrite();
      if (failing) logger.info({}, 'lake writable again');
      failing = false;
      retryState.clear();
    } catch (error) {
      if (isAppError(error, 'folder_lost')) {
        // The supervisor reports it, and ends this process.
        if (!failing) retryState.clear();
        return;
      }
      retryState.note(error);
      if (!failing) logger.warn({ error: describeError(error) }, 'lake not writable, will retry');
      failing = true;
    }
  }

  const loop = startPollLoop(check, { everyMs, onError: (error) => retryState.note(error), pausesFirst: true });
  return {
    problems: (): Problem[] =>
      retryState.problems(({ since, error }) => ({
        code: 'lake_unwritable',
        message: `the lake has not been writable since ${since}: ${error}`,
        action,
      })),
    stop: () => loop.stop(),
  };
}

const erasedIdsEveryMs = 5000;

/** Watches the file of erased ids, without which no lookup can report that an event was never received. */
function watchErasedIds(find: FindErasedIds) {
  let found: Problem[] = [];

  async function check(): Promise<void> {
    try {
      await find();
      found = [];
    } catch (error) {
      // The loops that read the lake report what else is wrong with it.
      if (!isAppError(error, 'file_damaged')) return;
      found = [{ code: 'erased_ids_damaged', message: error.message, action: error.hint ?? '' }];
    }
  }

  const loop = startPollLoop(check, { everyMs: erasedIdsEveryMs, onError: () => undefined });
  return { notices: () => found, stop: () => loop.stop() };
}

/** Watches conditions that no other loop detects: a lake that is not writable, and damaged erased ids. */
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
  return { problems: writeProbe.problems, notices: erasedIds.notices };
}
