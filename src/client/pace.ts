import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Spaces the requests of one client, so that it does not cause the rejections that it would then wait for.
 *
 * The pace of requests that the service limits: one at a time, at most one per `everyMs`, and none before a time that
 * the service has named.
 */
export function createPace(everyMs: number) {
  let nextMs = 0;
  let last: Promise<unknown> = Promise.resolve();

  async function runNext<T>(ask: () => Promise<T>): Promise<T> {
    for (let waitMs = nextMs - performance.now(); waitMs > 0; waitMs = nextMs - performance.now()) await sleep(waitMs);
    nextMs = performance.now() + everyMs;
    return ask();
  }

  return {
    /** Runs a request after those of earlier calls. */
    run<T>(ask: () => Promise<T>): Promise<T> {
      const result = last.then(() => runNext(ask));
      last = result.catch(() => undefined);
      return result;
    },
    /** Lets no request begin within the next `ms`. */
    hold(ms: number): void {
      nextMs = Math.max(nextMs, performance.now() + ms);
    },
  };
}
