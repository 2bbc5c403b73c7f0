import { rm } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createCheckpointTask } from '../../../src/compact/seal/cleanup-task.ts';
import { isCheckpointDue } from '../../../src/lake/cleanup.ts';
import { openLake } from '../../../src/lake/lake.ts';
import { checkpointName, listLog, logFolder } from '../../../src/lake/log/log-files.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { testFolder } from '../../helpers/folder.ts';

test('A checkpoint is due after commits, or after a commit and time; a large table has fewer', () => {
  const minuteMs = 60_000;
  const of = (commits: number, minutes: number, liveFiles: number): boolean =>
    isCheckpointDue({ commits, ageMs: minutes * minuteMs, liveFiles });
  expect([of(99, 1, 5), of(100, 1, 5)]).toEqual([false, true]);
  expect([of(0, 60, 5), of(1, 9, 5), of(1, 10, 5)]).toEqual([false, false, true]);
  expect([of(999, 1, 1_000_000), of(1000, 1, 1_000_000)]).toEqual([false, true]);
  expect([of(1, 80, 1_000_000), of(1, 84, 1_000_000)]).toEqual([false, true]);
});

test('A table with few commits gets a checkpoint in time, and an idle one gets none', async () => {
  const lakeDir = path.join(testFolder(), 'lake');
  const table = await openLake(lakeDir, { clock: createClock(0), crashPoint: noCrashPoint, retentionMs: 1000 });
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  let nowMs = 5;
  const turns = createCheckpointTask(table, noCrashPoint, undefined, () => nowMs);
  const checkpoints = async (): Promise<readonly number[]> => {
    await turns.run(duckdb);
    return (await listLog(table.dir)).checkpoints;
  };
  const commit = () => table.commit(() => ({ cause: 'flush', actions: [] }));

  expect(await checkpoints()).toEqual([0]);
  nowMs += 3_600_000;
  expect(await checkpoints()).toEqual([0]);
  await commit();
  expect(await checkpoints()).toEqual([0, 1]);
  await commit();
  nowMs += 599_999;
  expect(await checkpoints()).toEqual([0, 1]);
  nowMs += 1;
  expect(await checkpoints()).toEqual([0, 1, 2]);
});

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
