import { expect, test } from 'vitest';
import { inParallel } from '../../../../src/runtime/async/in-parallel.ts';

/** Lets all pending callbacks run. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('Every item is processed once, never more at a time than allowed', async () => {
  const done: number[] = [];
  let [running, most] = [0, 0];
  await inParallel([1, 2, 3, 4, 5, 6, 7], 3, async (item) => {
    running += 1;
    most = Math.max(most, running);
    await turn();
    running -= 1;
    done.push(item);
  });
  expect(done).toEqual([1, 2, 3, 4, 5, 6, 7]);
  expect(most).toBe(3);
});

test('Of several failures the first in time is thrown, regardless of its item', async () => {
  const running = inParallel([1, 2], 2, async (item) => {
    if (item === 1) await turn();
    throw new Error(`of item ${item}`);
  });
  await expect(running).rejects.toThrow('of item 2');
});

test('A failure stops further starts, and is thrown when the others have ended', async () => {
  const started: number[] = [];
  let ended = false;
  const running = inParallel([1, 2, 3, 4], 2, async (item) => {
    started.push(item);
    if (item === 1) throw new Error('first');
    await turn();
    ended = true;
  });
  await expect(running).rejects.toThrow('first');
  expect(started).toEqual([1, 2]);
  expect(ended).toBe(true);
});
