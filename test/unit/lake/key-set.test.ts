import { expect, test } from 'vitest';
import { createRandom } from '../../../src/demo/random.ts';
import { createKeySet, type GroupRange, type KeyHashes, type KeySet } from '../../../src/lake/batch/key-set.ts';

const random = createRandom(7);
const half = (): number => random.integer(0, 2 ** 32 - 1);
const hashes = (count: number): KeyHashes => ({
  lows: Uint32Array.from({ length: count }, half),
  highs: Uint32Array.from({ length: count }, half),
});
const findAll = (keys: KeySet, { lows, highs }: KeyHashes): (readonly number[])[] =>
  Array.from(lows, (low, index) => [...keys.find(low, highs[index] ?? 0)].toSorted((a, b) => a - b));
const addGroup = (keys: KeySet, added: KeyHashes): number => {
  const group = keys.addGroup() ?? 0;
  keys.add(added, group);
  return group;
};
const ranges: readonly GroupRange[] = ['255', 'any'];

test.for(ranges)(
  'With %s groups, a key is found in its group regardless of the size of the set, and other keys are not',
  (range) => {
    const keys = createKeySet(range);
    const added = Array.from({ length: 50 }, () => hashes(2000));
    const groups = added.map((some) => addGroup(keys, some));
    for (const [index, some] of added.entries())
      expect(findAll(keys, some).filter((found) => !found.includes(groups[index] ?? 0))).toEqual([]);
    expect(findAll(keys, hashes(100_000)).filter((found) => found.length > 0).length).toBeLessThan(3);
    expect(keys.size).toBe(100_000);
    expect(keys.bytes / keys.size).toBeLessThan(range === '255' ? 9 : 14);
  },
);

test('Keys with the same first bits at the ends of the set are distinguished, and each is found', () => {
  const keys = createKeySet('any');
  const lows = Uint32Array.from({ length: 600 }, (_, index) => [0, 1, 2 ** 32 - 1][index % 3] ?? 0);
  const highs = Uint32Array.from(lows, (_, index) => Math.floor(index / 3) * 2 ** 20);
  const group = addGroup(keys, { lows, highs });
  expect(findAll(keys, { lows, highs }).every((found) => found[0] === group)).toBe(true);
  expect(keys.find(2 ** 32 - 1, 200 * 2 ** 20)).toEqual([]);
});

test.for(ranges)(
  'With %s groups, two groups that may have a key are both found, and a dropped one no longer is',
  (range) => {
    const keys = createKeySet(range);
    const key = hashes(1);
    const first = addGroup(keys, key);
    keys.add(key, first);
    const second = addGroup(keys, key);
    expect(keys.size).toBe(2);
    expect(findAll(keys, key)).toEqual([[first, second]]);
    keys.dropGroup(first);
    expect(findAll(keys, key)).toEqual([[second]]);
    const third = addGroup(keys, key);
    expect(keys.size).toBe(2);
    expect(findAll(keys, key)).toEqual([[second, third]]);
  },
);

test.for(ranges)('With %s groups, a set whose rows move between groups does not grow', (range) => {
  const keys = createKeySet(range);
  const some = hashes(30_000);
  let group = addGroup(keys, some);
  const { bytes } = keys;
  for (let turn = 0; turn < 50; turn += 1) {
    keys.dropGroup(group);
    group = addGroup(keys, some);
  }
  expect(keys.bytes).toBeLessThanOrEqual(bytes);
  expect(findAll(keys, some).every((found) => found.length === 1 && found[0] === group)).toBe(true);
  for (let turn = 0; turn < 50; turn += 1) {
    keys.dropGroup(group);
    group = addGroup(keys, hashes(30_000));
  }
  expect(keys.bytes).toBeLessThan(4 * bytes);
});

test('Ids of 255 groups are reused when no key has them, and none is free while all are in use', () => {
  const keys = createKeySet('255');
  const living: { readonly group: number; readonly keys: KeyHashes }[] = [];
  const dropped: KeyHashes[] = [];
  for (let turn = 0; turn < 1000; turn += 1) {
    const some = hashes(50);
    living.push({ group: addGroup(keys, some), keys: some });
    if (living.length <= 100) continue;
    const [oldest] = living.splice(0, 1);
    keys.dropGroup(oldest?.group ?? 0);
    if (oldest !== undefined) dropped.push(oldest.keys);
  }
  expect(new Set(living.map(({ group }) => group)).size).toBe(100);
  for (const { group, keys: some } of living)
    expect(findAll(keys, some).every((found) => found.length === 1 && found[0] === group)).toBe(true);
  expect(dropped.flatMap((some) => findAll(keys, some)).filter((found) => found.length > 0)).toEqual([]);
  expect(keys.size).toBeLessThan(200 * 50);
  const numbers = Array.from({ length: 300 }, () => keys.addGroup());
  expect(numbers.filter((group) => group === undefined).length).toBeGreaterThan(100);
});
