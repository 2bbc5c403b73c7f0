import { pause } from '../runtime/async/retry.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import type { ImportArea } from './import-area.ts';

const everyMs = 500;

export interface LakeWaitOptions {
  readonly signal: AbortSignal;
  /** How long one key may stay on its way, milliseconds. */
  readonly patienceMs: number;
  readonly onWait: (why: string) => void;
}

/**
 * Waits until the batches of some keys are in the lake, and so in exports. Errors: `service_away` when that takes too
 * long; `stopping` when the signal ends it; `service_refused`.
 */
export async function waitForLake(area: ImportArea, keys: readonly string[], options: LakeWaitOptions): Promise<void> {
  const { signal, patienceMs, onWait } = options;
  // The last ones first: once they are there, the others are.
  for (const key of keys.toReversed()) {
    const until = performance.now() + patienceMs;
    for (;;) {
      let why = 'the events are on their way to the lake';
      let waitMs = everyMs;
      try {
        const answer = await area.findKey(key);
        if ('why' in answer) [why, waitMs] = [answer.why, answer.waitMs ?? everyMs];
        else if (answer.isInLake) break;
      } catch (error) {
        if (!isAppError(error, 'service_away')) throw error;
        why = describeError(error);
      }
      if (performance.now() > until) throw new AppError('service_away', `timed out waiting for the lake: ${why}`);
      onWait(why);
      await pause(waitMs, signal);
      if (signal.aborted) throw new AppError('stopping', 'the events are stored, and on their way to the lake');
    }
  }
}
