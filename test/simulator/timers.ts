import { activeWorld } from './world.ts';

// The real timers.
const { setTimeout: realTimeout, clearTimeout: clearReal } = globalThis;

/** The double of `node:timers/promises`: sleeps in the world's time. */
export function setTimeout(
  ms: number,
  value?: unknown,
  options: { readonly signal?: AbortSignal } = {},
): Promise<unknown> {
  const world = activeWorld();
  if (world === undefined) return new Promise((resolve) => void realTimeout(() => resolve(value), ms));
  return world.sleep(ms, options.signal).then(() => value);
}

/** The double of `setTimeout` of `node:timers`: calls back in the world's time. */
export function startTimer(callBack: () => void, ms: number): AbortController | NodeJS.Timeout {
  const world = activeWorld();
  if (world === undefined) return realTimeout(callBack, ms);
  const cleared = new AbortController();
  void world.sleep(ms, cleared.signal).then(
    () => {
      if (!cleared.signal.aborted) callBack();
    },
    () => undefined,
  );
  return cleared;
}

/** The double of `clearTimeout` of `node:timers`. */
export function clearTimer(timer: AbortController | NodeJS.Timeout | undefined): void {
  if (timer instanceof AbortController) timer.abort();
  else clearReal(timer);
}
