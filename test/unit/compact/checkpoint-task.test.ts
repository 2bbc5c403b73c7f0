import { rm } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createCheckpointTask } from '../../../src/compact/seal/cleanup-task.ts';
import { openLake } from '../../../src/lake/lake.ts';
import { checkpointName, listLog, logFolder } from '../../../src/lake/log/log-files.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { testFolder } from '../../helpers/folder.ts';

test('A checkpoint is written after a number of commits, and at once when history must go; an idle log is not listed', async () => {
  const lakeDir = path.join(testFolder(), 'lake');
  const table = await openLake(lakeDir, { clock: createClock(0), crashPoint: noCrashPoint, retentionMs: 1000 });
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const turns = createCheckpointTask(table, noCrashPoint, 3);
  const checkpoints = async (): Promise<readonly number[]> => {
    await turns.run(duckdb);
    return (await listLog(table.dir)).checkpoints;
  };
  const commit = () => table.commit(() => ({ cause: 'flush', actions: [] }));

  expect(await checkpoints()).toEqual([0]);
  for (let made = 0; made < 2; made += 1) await commit();
  expect(await checkpoints()).toEqual([0]);
  await commit();
  expect(await checkpoints()).toEqual([0, 3]);

  // A removed checkpoint is not missed before the next one is due.
  await rm(path.join(logFolder(table.dir), checkpointName(3)));
  expect(await checkpoints()).toEqual([0]);
  for (let made = 0; made < 3; made += 1) await commit();
  expect(await checkpoints()).toEqual([0, 6]);

  const forgetBefore = table.state().version + 1;
  await table.commit(() => ({ cause: 'erase', actions: [], forgetBefore }));
  expect(await checkpoints()).toEqual([0, 6, 7]);
});
