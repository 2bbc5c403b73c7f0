import { setTimeout as sleep } from 'node:timers/promises';

/** Waits until a condition holds, looking every few milliseconds; fails with `what` after `forMs`. */
export async function waitFor(what: string, condition: () => boolean | Promise<boolean>, forMs = 20_000): Promise<void> {
  const deadline = performance.now() + forMs;
  while (!(await condition())) {
    if (performance.now() >= deadline) throw new Error(`timed out waiting until ${what}`);
    await sleep(10);
  }
}
