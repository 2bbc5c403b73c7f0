import { readdirSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { events } from '../../../src/datasets/dataset.ts';
import { createIndexMaintenance } from '../../../src/event-lookup/finder.ts';
import type { IdIndex } from '../../../src/lake/event-index/id-index.ts';
import type { Snapshot } from '../../../src/lake/log/snapshot.ts';
import { testFolder } from '../../helpers/folder.ts';

/** An index that records its steps. Two merges are always due; the engine is asked for a missing file. */
function createSteps(steps: string[], missing: Awaited<ReturnType<IdIndex['keepOnly']>> = []): IdIndex {
  const merge = { parts: [], covers: new Set<string>() };
  return {
    find: () => Promise.reject(new Error('no lookup is expected')),
    async add(duckdb) {
      await duckdb.run("FROM read_parquet('/nowhere.parquet')");
    },
    async keepOnly() {
      steps.push('kept');
      return [...missing];
    },
    planMerges: () => [merge, merge],
    async merge() {
      steps.push('merged');
    },
  };
}

const engine = () => ({ memoryMb: 64, threads: 1, tempDir: path.join(testFolder(), 't') });

it('The maintenance limits the index to the live files and merges it, once per version', async () => {
  const steps: string[] = [];
  const upkeep = createIndexMaintenance({ engine: engine() });
  const ended = new AbortController();
  await upkeep.run(createSteps(steps), [], ended.signal);
  await upkeep.run(createSteps(steps), [], ended.signal);
  expect(steps).toEqual(['kept', 'merged', 'merged']);
  const other = createIndexMaintenance({ engine: engine() });
  ended.abort();
  await other.run(createSteps(steps), [], ended.signal);
  expect(steps.slice(3)).toEqual(['kept']);
});

it('The maintenance of the index opens no engine if nothing is to be indexed or merged', async () => {
  const folder = testFolder();
  const steps: string[] = [];
  const index: IdIndex = { ...createSteps(steps), planMerges: () => [] };
  // An engine creates the folder that it spills into.
  const upkeep = createIndexMaintenance({ engine: { ...engine(), tempDir: path.join(folder, 'spill', 't') } });
  await upkeep.run(index, [], new AbortController().signal);
  expect(steps).toEqual(['kept']);
  expect(readdirSync(folder)).toEqual([]);
});

it('A file that cannot be indexed blocks no merge of other files, and is retried', async () => {
  const lost = { path: 'a.parquet', absolutePath: '/nowhere/a.parquet', sha256: 'a'.repeat(64), young: false };
  const file = { ...lost, sizeBytes: 1, numRecords: 1, minValues: {}, maxValues: {} };
  const steps: string[] = [];
  const index = createSteps(steps, [file]);
  const upkeep = createIndexMaintenance({ engine: engine() });
  const tables = [{ dataset: events, snapshot: { version: 1, files: [file] } as unknown as Snapshot }];
  for (const times of [1, 2]) {
    await expect(upkeep.run(index, tables, new AbortController().signal)).rejects.toMatchObject({ code: 'sql' });
    expect(steps.filter((step) => step === 'merged')).toHaveLength(2 * times);
  }
});
