import { expect, test } from 'vitest';
import { withTimeout } from '../../../../src/runtime/async/in-parallel.ts';

test('Work that ends in time returns its result or throws its error', async () => {
  expect(await withTimeout(60_000, Promise.resolve(7))).toBe(7);
  await expect(withTimeout(60_000, Promise.reject(new Error('broken')))).rejects.toThrow('broken');
});

test('Work that does not end is not awaited, and its late failure is ignored', async () => {
  const rejects: ((reason: Error) => void)[] = [];
  const work = new Promise<never>((_resolve, reject) => void rejects.push(reject));
  await expect(withTimeout(1, work)).rejects.toThrow('no response within 1 ms');
  for (const reject of rejects) reject(new Error('late'));
  await expect(work).rejects.toThrow('late');
});
