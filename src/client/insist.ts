import { createBackoff } from '../runtime/async/backoff.ts';
import { pause } from '../runtime/async/retry.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import type { Later } from './import-area.ts';

const firstWaitMs = 250;
const longestWaitMs = 10_000;

export interface InsistOptions {
  /** Ends the waiting. */
  readonly signal: AbortSignal;
  /** `service_away` when nothing has been answered to anybody for so long, milliseconds. */
  readonly patienceMs: number;
  /** Something has to wait, and why; undefined: it goes on. */
  readonly onWait: (why: string | undefined) => void;
}

/** Asks until there is an answer that says something; undefined when the signal ended it. Errors: those of `ask`. */
export type Insist = <T extends object>(ask: () => Promise<T | Later>) => Promise<T | undefined>;

/** Makes one try of a question: the answer, or why there is none. */
async function tryOnce<T extends object>(ask: () => Promise<T | Later>): Promise<T | Later> {
  try {
    return await ask();
  } catch (error) {
    if (!isAppError(error, 'service_away')) throw error;
    return { why: describeError(error), waitMs: undefined };
  }
}

/** Creates the asking of one import: its patience is that of all its questions together. */
export function createInsist({ signal, patienceMs, onWait }: InsistOptions): Insist {
  let answeredAt = performance.now();
  return async (ask) => {
    const backoff = createBackoff(firstWaitMs, longestWaitMs);
    for (;;) {
      const answer = await tryOnce(ask);
      if (!('why' in answer)) {
        answeredAt = performance.now();
        onWait(undefined);
        return answer;
      }
      if (signal.aborted) return undefined;
      const { why, waitMs = backoff.currentMs() * (0.5 + Math.random() / 2) } = answer;
      if (performance.now() - answeredAt > patienceMs)
        throw new AppError('service_away', `nothing was taken for ${Math.round(patienceMs / 1000)} s: ${why}`, {
          hint: 'Repeat the command when the service runs again: it goes on where it was.',
        });
      onWait(why);
      await pause(waitMs, signal);
      backoff.grow();
      if (signal.aborted) return undefined;
    }
  };
}
