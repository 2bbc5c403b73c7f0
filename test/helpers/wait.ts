import { setTimeout as sleep } from 'node:timers/promises';

const firstPauseMs = 10;
const longestPauseMs = 80;
const growth = 1.3;

/**
 * Waits for a condition and polls it every few milliseconds, at growing intervals, to leave the processor to the tested
 * code. Rejects with `what` after `forMs`.
 */
export async function waitFor(
  what: string,
  condition: () => boolean | Promise<boolean>,
  forMs = 20_000,
): Promise<void> {
  const deadline = performance.now() + forMs;
  for (let pauseMs = firstPauseMs; !(await condition()); pauseMs = Math.min(pauseMs * growth, longestPauseMs)) {
    if (performance.now() >= deadline) throw new Error(`timed out waiting until ${what}`);
    await sleep(pauseMs);
  }
}

/**
 * Settles as a promise does; rejects with `what` after `forMs`, so that a wait for another process ends with a name.
 */
export async function within<T>(what: string, promise: Promise<T>, forMs = 40_000): Promise<T> {
  const waited = new AbortController();
  const late = async (): Promise<never> => {
    await sleep(forMs, undefined, { signal: waited.signal });
    throw new Error(`timed out waiting until ${what}`);
  };
  try {
    return await Promise.race([promise, late()]);
  } finally {
    waited.abort();
  }
}
