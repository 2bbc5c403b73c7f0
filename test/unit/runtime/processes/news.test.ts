import { expect, it } from 'vitest';
import { createNews } from '../../../../src/runtime/processes/news.ts';
import { waitFor } from '../../../helpers/wait.ts';

/** Passes on each of the texts; those that were told. */
function toldOf(texts: readonly string[], silenceMs?: number): string[] {
  const told: string[] = [];
  const news = createNews(silenceMs);
  for (const text of texts) news.pass(text, () => void told.push(text));
  return told;
}

it('What has changed is told at once, and what has not is not told again', () => {
  expect(toldOf(['a', 'a', 'b', 'b', 'a'])).toEqual(['a', 'b', 'a']);
});

it('What has not changed is told again when the last sign of life is long ago', async () => {
  let told = 0;
  const news = createNews(20);
  await waitFor('a second sign of life', () => {
    news.pass('the same', () => void (told += 1));
    return told === 2;
  });
  expect(told).toBe(2);
});

it('What could not be told is told again', () => {
  const news = createNews();
  expect(() =>
    news.pass('a', () => {
      throw new Error('full disk');
    }),
  ).toThrow('full disk');
  let told = false;
  news.pass('a', () => void (told = true));
  expect(told).toBe(true);
});
