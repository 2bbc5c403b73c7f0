import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { createRandom } from '../../../src/demo/random.ts';
import { findPairs, writePairs, type PairColumns } from '../../../src/lake/files/id-pairs.ts';
import { testFolder } from '../../helpers/folder.ts';

type Pair = readonly [key: number, value: number];

const high = (n: number): number => Math.floor(n / 2 ** 32);

/** Hands pairs out in some chunks, as the columns that an engine gives. */
async function* toChunks(pairs: readonly Pair[], size = 1000): AsyncGenerator<PairColumns> {
  const sorted = pairs.toSorted(([a], [b]) => a - b);
  for (let from = 0; from < sorted.length; from += size) {
    const chunk = sorted.slice(from, from + size);
    yield [
      Uint32Array.from(chunk, ([key]) => high(key)),
      Uint32Array.from(chunk, ([key]) => key % 2 ** 32),
      Uint32Array.from(chunk, ([, value]) => high(value)),
      Uint32Array.from(chunk, ([, value]) => value % 2 ** 32),
    ];
  }
}

async function writeTestPairs(pairs: readonly Pair[]): Promise<string> {
  const file = path.join(testFolder(), 'test.ids');
  await writePairs(file, toChunks(pairs));
  return file;
}

const random = createRandom(7);
const anyKey = (): number => random.integer(0, 2 ** 48 - 2);

describe('a file of pairs', () => {
  it.each([0, 1, 340, 341, 342, 682, 341 * 256, 100_000])(
    'Every key of %d is found with its value, and no other key is',
    async (count) => {
      const pairs = Array.from({ length: count }, (): Pair => [anyKey(), random.integer(0, 2 ** 48 - 1)]);
      const file = await writeTestPairs(pairs);
      const known = new Set(pairs.map(([key]) => key));
      for (const [key, value] of pairs.slice(0, 500)) expect(await findPairs(file, [key])).toContain(value);
      const others = [0, 2 ** 48 - 2, ...Array.from({ length: 200 }, anyKey)].filter((key) => !known.has(key));
      for (const key of others) expect(await findPairs(file, [key])).toEqual([]);
      expect(readdirSync(path.dirname(file))).toEqual(['test.ids']);
    },
  );

  it('Keys that lie close together, and the many values of one key, are found all the same', async () => {
    const close = Array.from({ length: 5000 }, (_, index): Pair => [1_000_000 + index, index]);
    const many = Array.from({ length: 2000 }, (_, index): Pair => [2 ** 40, index]);
    const file = await writeTestPairs([...close, ...many]);
    for (const [key, value] of close.filter((_, index) => index % 20 === 0))
      expect(await findPairs(file, [key])).toEqual([value]);
    const values = await findPairs(file, [2 ** 40]);
    expect(values.toSorted((a, b) => a - b)).toEqual(many.map(([, value]) => value));
  });

  it('Many keys are looked up at once as each by itself, in a small file and in a large one', async () => {
    for (const count of [0, 300, 20_000]) {
      const pairs = Array.from({ length: count }, (_, index): Pair => [anyKey(), index]);
      const file = await writeTestPairs(pairs);
      const sought = pairs.slice(0, 250);
      for (const others of [10, 2000]) {
        const keys = [...sought, ...sought].map(([key]) => key).concat(Array.from({ length: others }, anyKey));
        const values = await findPairs(file, keys);
        expect(values.toSorted((a, b) => a - b)).toEqual(sought.map(([, value]) => value));
      }
    }
    expect(await findPairs(await writeTestPairs([[1, 2]]), [])).toEqual([]);
  });

  it('A file that was cut off or changed is refused where it is read, and gives no wrong answer', async () => {
    const pairs = Array.from({ length: 3000 }, (): Pair => [anyKey(), random.integer(0, 1000)]);
    const file = await writeTestPairs(pairs);
    const whole = readFileSync(file);
    const find = (key: number): Promise<number[] | string> =>
      findPairs(file, [key]).catch((error: unknown) => (error as { code: string }).code);
    for (const bytes of [0, 1, 4095, 4096, whole.length - 4096, whole.length - 1]) {
      writeFileSync(file, whole.subarray(0, bytes));
      expect(await find(pairs[0]?.[0] ?? 0)).toBe('file_damaged');
    }
    for (const [key, value] of pairs.slice(0, 200)) {
      const changed = Buffer.from(whole);
      const at = random.integer(0, whole.length - 1);
      changed.writeUInt8(changed.readUInt8(at) ^ (1 << random.integer(0, 7)), at);
      writeFileSync(file, changed);
      expect(['file_damaged', [value]]).toContainEqual(await find(key));
    }
  });
});
