import { expect, test } from 'vitest';
import { createRandom } from '../../../src/demo/random.ts';
import { createKeySet, type KeyHash } from '../../../src/lake/batch/key-set.ts';

const random = createRandom(7);
const hash = (): KeyHash => ({ low: random.integer(0, 2 ** 32 - 1), high: random.integer(0, 2 ** 32 - 1) });

test('A key is found in the file that has it, however far the set has grown, and others are not', () => {
  const keys = createKeySet();
  const files = Array.from({ length: 5 }, () => keys.addFile());
  const added = Array.from({ length: 50_000 }, (_, index) => ({ key: hash(), file: files[index % 5] ?? 0 }));
  for (const { key, file } of added) keys.add(key, file);
  expect(added.filter(({ key, file }) => !keys.find(key).includes(file))).toEqual([]);
  const others = Array.from({ length: 50_000 }, hash);
  expect(others.filter((key) => keys.find(key).length > 0).length).toBeLessThan(3);
  expect(keys.size).toBe(50_000);
  expect(keys.bytes / keys.size).toBeLessThan(17);
});

test('Keys with the same first bits at the ends of the set are told apart, and each is found', () => {
  const keys = createKeySet();
  const file = keys.addFile();
  const ends = [0, 2 ** 32 - 1].flatMap((low) => Array.from({ length: 200 }, (_, high) => ({ low, high })));
  for (const key of ends) keys.add(key, file);
  expect(ends.every((key) => keys.find(key).length === 1)).toBe(true);
  expect(keys.find({ low: 0, high: 200 })).toEqual([]);
});

test('Of two files that may have a key both are named, and one that is dropped no more', () => {
  const keys = createKeySet();
  const [first, second] = [keys.addFile(), keys.addFile()];
  const key = hash();
  keys.add(key, first);
  keys.add(key, first);
  keys.add(key, second);
  expect(keys.size).toBe(2);
  expect(keys.find(key).toSorted((a, b) => a - b)).toEqual([first, second]);
  keys.dropFile(first);
  expect(keys.find(key)).toEqual([second]);
  const third = keys.addFile();
  keys.add(key, third);
  // in the place of the one that was dropped
  expect(keys.size).toBe(2);
  expect(keys.find(key).toSorted((a, b) => a - b)).toEqual([second, third]);
});

test('A set whose rows move from file to file does not grow, and gives the numbers of old files to new ones', () => {
  const keys = createKeySet();
  const some = Array.from({ length: 3000 }, hash);
  let file = keys.addFile();
  for (const key of some) keys.add(key, file);
  const { bytes } = keys;
  for (let turn = 0; turn < 50; turn += 1) {
    keys.dropFile(file);
    file = keys.addFile();
    for (const key of some) keys.add(key, file);
  }
  expect(keys.bytes).toBe(bytes);
  expect(some.every((key) => keys.find(key)[0] === file)).toBe(true);
  // ever new keys: dropped ones make room
  for (let turn = 0; turn < 50; turn += 1) {
    keys.dropFile(file);
    file = keys.addFile();
    for (let n = 0; n < 3000; n += 1) keys.add(hash(), file);
  }
  expect(keys.bytes).toBeLessThan(4 * bytes);
});
