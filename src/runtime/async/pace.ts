import { inParallel } from './in-parallel.ts';
import { pause } from './retry.ts';

/** Items between two looks at the time. */
const batchSize = 16;
/** Works so long at a stretch, milliseconds. */
const stretchMs = 50;

/**
 * Runs a task for each item, at most `width` at a time, and rests for as long as it worked: for what has to be done
 * some time and must not get in the way of anything. Ends early when the signal aborts.
 */
export async function runAtHalfPace<T>(
  items: readonly T[],
  width: number,
  task: (item: T) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  let sinceMs = performance.now();
  for (let from = 0; from < items.length && !signal.aborted; from += batchSize) {
    await inParallel(items.slice(from, from + batchSize), width, task);
    const workedMs = performance.now() - sinceMs;
    if (workedMs < stretchMs) continue;
    await pause(workedMs, signal);
    sinceMs = performance.now();
  }
}
