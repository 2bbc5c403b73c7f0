import path from 'node:path';
import { expect, it } from 'vitest';
import { events } from '../../../src/datasets/dataset.ts';
import { createIndexUpkeep } from '../../../src/find/index-upkeep.ts';
import type { IdIndex } from '../../../src/lake/find/id-index.ts';
import type { Snapshot } from '../../../src/lake/log/snapshot.ts';
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

it('A file that cannot be indexed keeps no other out of a pack, and is tried again', async () => {
  const folder = testFolder();
  const lost = {
    path: 'a.parquet',
    absolutePath: path.join(folder, 'a.parquet'),
    sha256: 'a'.repeat(64),
    young: false,
  };
  const file = { ...lost, sizeBytes: 1, numRecords: 1, minValues: {}, maxValues: {} };
  let packs = 0;
  const index: IdIndex = {
    find: () => Promise.reject(new Error('nobody asks')),
    add: () => Promise.reject(new Error('the upkeep has an engine of its own')),
    keepOnly: () => Promise.resolve([file]),
    async *pack() {
      packs += 1;
      yield;
    },
  };
  const upkeep = createIndexUpkeep({
    indexDir: path.join(folder, 'index'),
    engine: { memoryMb: 64, threads: 1, tempDir: path.join(folder, 't') },
  });
  const tables = [{ dataset: events, snapshot: { version: 1, files: [file] } as unknown as Snapshot }];
  for (const times of [1, 2]) {
    await expect(upkeep.run(index, tables, new AbortController().signal)).rejects.toMatchObject({ code: 'sql' });
    expect(packs).toBe(times);
  }
});
