import { setTimeout as realTimeout } from 'node:timers';
import { activeWorld } from './world.ts';

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
