import type { FindErasedIds } from '../lake/find/erased-ids.ts';
import { isAppError } from '../runtime/errors.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';

/** Watches the file of the hashes of erased ids: without it nobody can say that an event has never come. */
export interface ErasedIdsWatch extends Stoppable {
  /** That the file is missing or damaged. */
  notices(): Problem[];
}

/** An unchanged file costs a look at it and at the newest commit, milliseconds. */
const everyMs = 5000;

/** Starts the looks, the first at once. What else keeps the lake from being read is reported by the loops that need it. */
export function watchErasedIds(find: FindErasedIds): ErasedIdsWatch {
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

  const loop = startPollLoop(look, { everyMs, onError: () => undefined });
  return { notices: () => found, stop: () => loop.stop() };
}
