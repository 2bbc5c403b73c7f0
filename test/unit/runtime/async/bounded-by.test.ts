import { expect, test } from 'vitest';
import { boundedBy } from '../../../../src/runtime/async/in-parallel.ts';

test('Work that ends in time gives what it gives, and what it throws', async () => {
  expect(await boundedBy(60_000, Promise.resolve(7))).toBe(7);
  await expect(boundedBy(60_000, Promise.reject(new Error('broken')))).rejects.toThrow('broken');
});

test('Work that does not end is not waited for, and its late failure is of no consequence', async () => {
  const rejects: ((reason: Error) => void)[] = [];
  const work = new Promise<never>((_resolve, reject) => void rejects.push(reject));
  await expect(boundedBy(1, work)).rejects.toThrow('no response within 1 ms');
  for (const reject of rejects) reject(new Error('late'));
  await expect(work).rejects.toThrow('late');
});
