import { expect, it } from 'vitest';
import { createResultCache } from '../../../../src/export/jobs/result-cache.ts';

/** Longer than a result without a duration is reused. */
const soon = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 10));

/** Runs queries through a cache. Each returns its number. */
function openCache() {
  const cache = createResultCache<number>();
  let queries = 0;
  return (key: string, versions: string | undefined, isLasting = true): Promise<number> =>
    cache.find(
      key,
      versions,
      () => isLasting,
      () => Promise.resolve((queries += 1)),
    );
}

it('A result is reused for the same apps and versions, and not for others or unknown versions', async () => {
  const find = openCache();
  expect([await find('7', 'events 1'), await find('7', 'events 1')]).toEqual([1, 1]);
  expect(await find('8', 'events 1')).toBe(2);
  await soon();
  expect(await find('7', 'events 2')).toBe(3);
  await soon();
  expect(await find('7', undefined)).toBe(4);
  await soon();
  expect(await find('7', undefined)).toBe(5);
});

it('A failure is not cached, and of many results the least recently stored goes first', async () => {
  const find = openCache();
  expect([await find('7', 'events 1', false), await find('7', 'events 1')]).toEqual([1, 2]);
  for (let app = 1000; app < 1200; app += 1) await find(String(app), 'events 1');
  expect(await find('1199', 'events 1')).toBe(202);
  expect(await find('7', 'events 1')).toBe(203);
});
