import { expect, test } from 'vitest';
import { createRandom } from '../../../src/demo/random.ts';
import { chooseInputs, cutPortions, isDayOver } from '../../../src/compact/seal/merge-policy.ts';

const sealed = (name: string, sizeBytes: number) => {
  const publishedPath = `date=2026-01-31/${name}.parquet`;
  return { path: `_sealed/${publishedPath}`, publishedPath, sizeBytes };
};
/** Files of one merge. */
const merged = (id: string, ...sizes: number[]) => sizes.map((size, index) => sealed(`${id}-merged-${index}`, size));
const sizesOf = (files: readonly { readonly sizeBytes: number }[]): number[] => files.map(({ sizeBytes }) => sizeBytes);

test('A day is merged once: all its files, or none if there is one', () => {
  expect(chooseInputs([sealed('a', 10)])).toEqual([]);
  const files = [sealed('a', 1000), sealed('b', 1), sealed('c', 5)];
  expect(chooseInputs(files)).toEqual(files);
  expect(chooseInputs(merged('m', 100, 100, 50))).toEqual([]);
  expect(chooseInputs([])).toEqual([]);
});

test('Late files are merged with the day if they have a quarter of its bytes', () => {
  const day = merged('m', 50, 50);
  expect(chooseInputs([...day, sealed('a', 24)])).toEqual([]);
  expect(sizesOf(chooseInputs([...day, sealed('a', 25)]))).toEqual([50, 50, 25]);
  expect(sizesOf(chooseInputs([...day, sealed('a', 13), sealed('b', 12)]))).toEqual([50, 50, 13, 12]);
});

test('Smaller late files are merged with each other, so that at most three remain', () => {
  const day = merged('m', 5000, 5000);
  expect(sizesOf(chooseInputs([...day, sealed('a', 10), sealed('b', 9)]))).toEqual([10, 9]);
  expect(chooseInputs([...day, sealed('a', 100), sealed('b', 9)])).toEqual([]);
  expect(sizesOf(chooseInputs([...day, sealed('a', 500), sealed('b', 100), sealed('c', 9)]))).toEqual([100, 9]);
});

test('A rewrite of a merged file still belongs to its merge', () => {
  const rewritten = {
    ...sealed('m-merged-1', 50),
    path: '_sealed/date=2026-01-31/m-merged-1.01234567-89ab-7def-8123-456789abcdef-0.parquet',
  };
  expect(chooseInputs([...merged('m', 50), rewritten])).toEqual([]);
});

test('At any time a merged day has at most three merges and late files, and a byte is rewritten about as often as the day grows by a quarter', () => {
  const random = createRandom(7);
  for (let round = 0; round < 50; round += 1) {
    let files = [sealed('first', random.integer(1, 1_000_000)), sealed('second', random.integer(1, 1_000_000))];
    let [rewritten, total] = [0, 0];
    const firstBytes = sizesOf(files).reduce((sum, size) => sum + size, 0);
    for (let day = 0; day < 100; day += 1) {
      for (let inputs = chooseInputs(files); inputs.length > 0; inputs = chooseInputs(files)) {
        const bytes = sizesOf(inputs).reduce((sum, size) => sum + size, 0);
        rewritten += bytes;
        files = [...files.filter((file) => !inputs.includes(file)), ...merged(`${round}-${day}`, bytes)];
      }
      expect(files.length).toBeLessThanOrEqual(3);
      files.push(sealed(`late-${day}`, random.integer(1, 20_000)));
    }
    total = sizesOf(files).reduce((sum, size) => sum + size, 0);
    const growths = Math.log(total / firstBytes) / Math.log(1.25);
    // The first merge, one per growth by a quarter, and late files among each other: less than a sixteenth of the day.
    expect(rewritten).toBeLessThan(total * (2 + growths + 100 / 16));
  }
});

test('A day has ended some time after its midnight in UTC', () => {
  const end = Date.UTC(2026, 1, 1);
  expect(isDayOver('2026-01-31', end + 999, 1000)).toBe(false);
  expect(isDayOver('2026-01-31', end + 1000, 1000)).toBe(true);
  expect(isDayOver(undefined, end, 0)).toBe(false);
  expect(isDayOver('__HIVE_DEFAULT_PARTITION__', end, 0)).toBe(false);
});

const portion = (bytes: number, wideBytes = 0) => ({ rows: 1, bytes, wideBytes });
const sizesIn = (portions: readonly { readonly bytes: number }[]): number[] => portions.map(({ bytes }) => bytes);

test('Portions are cut in order into files within the limit; a larger one is alone', () => {
  const limit = { bytes: 100, wideBytes: 10 };
  const cut = (portions: readonly ReturnType<typeof portion>[]): number[][] =>
    cutPortions(portions, limit).map(sizesIn);
  expect(cut([])).toEqual([]);
  expect(cut([portion(60), portion(40), portion(1)])).toEqual([[60, 40], [1]]);
  expect(cut([portion(1), portion(500), portion(1)])).toEqual([[1], [500], [1]]);
  expect(cut([portion(1, 6), portion(2, 6), portion(3, 4)])).toEqual([[1], [2, 3]]);
});
