import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createKeyedSemaphore } from '../../../../src/runtime/async/semaphore.ts';

test('At most two tasks of a key run at a time, in their order, and those of another key do not wait', async () => {
  const slots = createKeyedSemaphore(2);
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const task = (name: string) => () => {
    begun.push(name);
    return new Promise<void>((resolve) => ends.push(resolve));
  };
  const all = ['a1', 'a2', 'a3', 'a4', 'b1'].map((name) => slots.run(name.slice(0, 1), task(name)));
  await turn();
  expect(begun).toEqual(['a1', 'a2', 'b1']);
  ends[0]?.();
  await all[0];
  await turn();
  expect(begun).toEqual(['a1', 'a2', 'b1', 'a3']);
  for (let index = 1; index < 5; index += 1) {
    ends[index]?.();
    await turn();
  }
  await Promise.all(all);
  expect(begun.at(-1)).toBe('a4');
  await expect(slots.run('a', () => Promise.reject(new Error('it failed')))).rejects.toThrow('it failed');
  expect(await slots.run('a', async () => 'free again')).toBe('free again');
});
