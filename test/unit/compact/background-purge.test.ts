import { expect, test } from 'vitest';
import { createBackgroundPurge } from '../../../src/compact/flush-loop.ts';

test('Each failure of a purge is an error when the next purge has begun', async () => {
  const purging = createBackgroundPurge();
  const begun: number[] = [];
  const begin = (number: number, isGood: boolean): Promise<void> =>
    purging.begin(() => {
      begun.push(number);
      return isGood ? Promise.resolve() : Promise.reject(new Error(`purge ${number}`));
    });
  await begin(1, false);
  await expect(begin(2, false)).rejects.toThrow('purge 1');
  await expect(begin(3, true)).rejects.toThrow('purge 2');
  await begin(4, false);
  expect(begun).toEqual([1, 2, 3, 4]);
  await expect(purging.ended()).rejects.toThrow('purge 4');
  await purging.ended();
});
