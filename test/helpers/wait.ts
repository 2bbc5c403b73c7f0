import { setTimeout as sleep } from 'node:timers/promises';

/** Waits until a condition holds, looking every few milliseconds; fails with `what` after `forMs`. */
export async function waitFor(what: string, condition: () => boolean | Promise<boolean>, forMs = 20_000): Promise<void> {
  const deadline = performance.now() + forMs;
  while (!(await condition())) {
    if (performance.now() >= deadline) throw new Error(`timed out waiting until ${what}`);
    await sleep(10);
  }
}

/** Settles as a promise does; fails with `what` when that takes longer than `forMs`, so that a wait for another process has an end and a name. */
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
