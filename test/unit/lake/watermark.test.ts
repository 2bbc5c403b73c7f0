import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { advanceEpoch } from '../../../src/compact/batch/flush-commit.ts';
import type { Batch } from '../../../src/compact/batch/pull-batch.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import type { Epoch } from '../../../src/lake/log/lake-state.ts';
import { findWatermarkMs, isCompleteUpTo, writeWatermark } from '../../../src/lake/watermark.ts';
import { testFolder } from '../../helpers/folder.ts';

const clock = { nowMs: () => 10_000 };
const epoch: Epoch = { appId: 'S@1', streamId: 'S@1', position: 7, dedupeThrough: 0, watermarkMs: 2000 };

test('A position has its stored watermark, and any other position that of its commit', async () => {
  const lakeDir = testFolder();
  expect(await findWatermarkMs(lakeDir, epoch, clock)).toBe(2000);
  await writeWatermark(lakeDir, { appId: 'S@1', position: 7, watermarkMs: 5000 });
  expect(await findWatermarkMs(lakeDir, epoch, clock)).toBe(5000);
  expect(await findWatermarkMs(lakeDir, { ...epoch, position: 8 }, clock)).toBe(2000);
  expect(await findWatermarkMs(lakeDir, { ...epoch, appId: 'S@2' }, clock)).toBe(2000);
  // A broker clock that was set back sets it back.
  await writeWatermark(lakeDir, { appId: 'S@1', position: 7, watermarkMs: 1000 });
  expect(await findWatermarkMs(lakeDir, epoch, clock)).toBe(1000);
  expect(await findWatermarkMs(lakeDir, undefined, clock)).toBeUndefined();
});

test('A damaged watermark file is ignored', async () => {
  const lakeDir = testFolder();
  await writeWatermark(lakeDir, { appId: 'S@1', position: 7, watermarkMs: 5000 });
  const { watermark } = lakePaths(lakeDir);
  writeFileSync(watermark, readFileSync(watermark, 'utf8').replace('5000', '9000'));
  expect(await findWatermarkMs(lakeDir, epoch, clock)).toBe(2000);
});

test('A watermark in the future is not returned', async () => {
  const lakeDir = testFolder();
  const at = (watermarkMs: number) => findWatermarkMs(lakeDir, { ...epoch, watermarkMs }, clock);
  expect([await at(10_000), await at(10_001)]).toEqual([10_000, undefined]);
});

test('After a flush the watermark is the storage time of the last message of the batch, or the previous one if that is unknown', () => {
  const batch = { lastSequence: 9, lastHash: 'hash' } as Batch;
  const before: Epoch = { ...epoch, nextHash: 'next' };
  expect(advanceEpoch(before, { ...batch, lastStoredAtMs: 3000 })).toEqual({
    ...epoch,
    position: 9,
    anchorHash: 'hash',
    watermarkMs: 3000,
  });
  expect(advanceEpoch(before, batch)).toEqual({ ...epoch, position: 9, anchorHash: 'hash' });
});

test('A table without imported events is complete', async () => {
  const lakeDir = testFolder();
  expect(await isCompleteUpTo(path.join(lakeDir, 'installs'), 10_000, clock)).toBe(true);
  expect(await isCompleteUpTo(path.join(lakeDir, 'events'), 10_000, clock)).toBe(true);
});
