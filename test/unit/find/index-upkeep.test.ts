import path from 'node:path';
import { expect, it } from 'vitest';
import { createIndexUpkeep } from '../../../src/find/index-upkeep.ts';
import type { IdIndex } from '../../../src/lake/find/id-index.ts';
import { testFolder } from '../../helpers/folder.ts';

it('The upkeep keeps the index to the live files, makes its packs, and does neither again for the same versions', async () => {
  const steps: string[] = [];
  const index: IdIndex = {
    find: () => Promise.reject(new Error('nobody asks')),
    add: () => Promise.reject(new Error('nothing is missing')),
    async keepOnly() {
      steps.push('kept');
      return [];
    },
    async *pack() {
      steps.push('packed');
      yield;
      steps.push('packed');
      yield;
    },
  };
  const folder = testFolder();
  const upkeep = createIndexUpkeep({
    indexDir: folder,
    engine: { memoryMb: 64, threads: 1, tempDir: path.join(folder, 't') },
  });
  const ended = new AbortController();
  await upkeep.run(index, [], ended.signal);
  await upkeep.run(index, [], ended.signal);
  expect(steps).toEqual(['kept', 'packed', 'packed']);
  const other = createIndexUpkeep({
    indexDir: folder,
    engine: { memoryMb: 64, threads: 1, tempDir: path.join(folder, 't') },
  });
  ended.abort();
  await other.run(index, [], ended.signal);
  expect(steps.slice(3)).toEqual(['kept', 'packed']);
});
