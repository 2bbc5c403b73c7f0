import { expect, it, onTestFinished, vi } from 'vitest';
import { createResultCache } from '../../../../src/export/jobs/result-cache.ts';

/** Runs queries of 5 ms through a cache, on a simulated clock. Each returns its number. */
function openCache() {
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const cache = createResultCache<number>();
  let queries = 0;
  return (key: string, versions: string | undefined, isLasting = true): Promise<number> =>
    cache.find(
      key,
      versions,
      () => isLasting,
      () => {
        vi.advanceTimersByTime(5);
        return Promise.resolve((queries += 1));
      },
    );
}

it('A result is reused for the same versions, and for others or unknown ones for twenty times its duration', async () => {
  const find = openCache();
  expect([await find('7', 'events 1'), await find('7', 'events 1')]).toEqual([1, 1]);
  expect(await find('8', 'events 1')).toBe(2);
  vi.advanceTimersByTime(94);
  expect(await find('7', 'events 2')).toBe(1);
  vi.advanceTimersByTime(1);
  expect(await find('7', 'events 2')).toBe(3);
  vi.advanceTimersByTime(100);
  expect(await find('7', 'events 2')).toBe(3);
  expect(await find('7', undefined)).toBe(4);
  vi.advanceTimersByTime(100);
  expect(await find('7', undefined)).toBe(5);
});

it('A failure is not cached, and of many results the least recently stored goes first', async () => {
  const find = openCache();
  expect([await find('7', 'events 1', false), await find('7', 'events 1')]).toEqual([1, 2]);
  for (let app = 1000; app < 1200; app += 1) await find(String(app), 'events 1');
  expect(await find('1199', 'events 1')).toBe(202);
  expect(await find('7', 'events 1')).toBe(203);
});
