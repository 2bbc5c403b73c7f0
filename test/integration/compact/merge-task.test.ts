import { execFileSync } from 'node:child_process';
import { readdir, symlink } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { checkLake } from '../../../src/lake/check.ts';
import { changeSteps } from '../../../src/lake/files/change.ts';
import { mergedFolderSteps } from '../../../src/lake/files/merged-folders.ts';
import { isMergedPath } from '../../../src/lake/log/young-folder.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot, type DataFile } from '../../../src/lake/log/snapshot.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import type { Problem } from '../../../src/runtime/problems/problem.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { startLakeReaders } from '../../helpers/lake-readers.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { addHour, dayFolder, expectSortedByApp, openSealedDay, readGlob, readLog } from '../../helpers/sealed-day.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

const clock = createClock(0);
const listFiles = async (lakeDir: string): Promise<readonly DataFile[]> =>
  (await readSnapshot(lakePaths(lakeDir).table)).files;
const isOld = ({ publishedPath }: DataFile): boolean => publishedPath?.includes('date=2023') === true;
const isMerged = ({ publishedPath = '' }: DataFile): boolean => isMergedPath(publishedPath);

/** Reports whether readers of folders find exactly the live files. */
async function isShown(lakeDir: string): Promise<boolean> {
  const files = await listFiles(lakeDir);
  const names = await readdir(path.join(lakePaths(lakeDir).table, dayFolder));
  return (
    names.toSorted().join() ===
    files
      .map((file) => path.basename(file.publishedPath ?? ''))
      .toSorted()
      .join()
  );
}

test('A compactor merges a day in the background, also if each step fails once, and late rows when they pay', async () => {
  const { folder, lakeDir, table } = await openSealedDay(clock, { hours: 6, rows: 800 });
  const bytes = table.snapshot().files.reduce((sum, file) => sum + file.sizeBytes, 0);
  const rows = await readLog(lakeDir);
  // After the last step of a change, nothing is left to do.
  const left = new Set<string>([...changeSteps.slice(0, -1), ...mergedFolderSteps]);
  const crashPoint = async (step: string): Promise<void> => {
    if (left.delete(step)) throw new Error(`ended at ${step}`);
  };
  const options = { sealAgeMs: 500, retentionMs: 1500, mergeAfterMs: 0, mergeFileBytes: bytes / 4, crashPoint };
  const readers = startLakeReaders(folder);
  const first = await startTestCompact(folder, createMemoryStream(), options);
  await waitFor('the day is merged', async () => (await listFiles(lakeDir)).every(isMerged), 60_000);
  await waitFor('readers of folders see it', () => isShown(lakeDir), 60_000);
  await first.stop();
  expect(await readGlob(lakeDir)).toEqual(rows);
  expect(await readLog(lakeDir)).toEqual(rows);
  const merged = await listFiles(lakeDir);
  expect(merged.length).toBeLessThanOrEqual(7);
  await expectSortedByApp(merged);

  // A file of few late rows waits; with a larger one, all is merged.
  await table.refresh();
  await addHour(table, clock, 24, 20);
  const second = await startTestCompact(folder, createMemoryStream(), options);
  await waitFor('readers of folders see the late rows', () => isShown(lakeDir), 60_000);
  expect((await listFiles(lakeDir)).filter((file) => !isMerged(file))).toHaveLength(1);
  await second.stop();
  await table.refresh();
  await addHour(table, clock, 25, 2400);
  const all = await readLog(lakeDir);
  const third = await startTestCompact(folder, createMemoryStream(), options);
  await waitFor('all is merged', async () => (await listFiles(lakeDir)).every(isMerged), 60_000);
  await waitFor('readers of folders see all', () => isShown(lakeDir), 60_000);
  await third.stop();
  await readers.stop();
  expect([...left]).toEqual([]);
  expect(await readGlob(lakeDir)).toEqual(all);
  expect((await checkLake(lakeDir)).problems).toEqual([]);
  expect(readers.reads()).toBeGreaterThan(10);
}, 240_000);

const warnings = (facts: Readonly<Record<string, unknown>>): Problem[] =>
  (facts['warnings'] as Problem[]).filter(({ code }) => code === 'merge_paused');

test('Without a way to exchange folders, no day is merged, and the operator sees why', async () => {
  const { folder, lakeDir } = await openSealedDay(clock, { hours: 2, rows: 100 });
  const programs = testFolder();
  const flock = execFileSync('which', ['flock'], { encoding: 'utf8' }).trim();
  await symlink(flock, path.join(programs, 'flock'));
  vi.stubEnv('PATH', programs);
  onTestFinished(() => void vi.unstubAllEnvs());
  const compactor = await startTestCompact(folder, createMemoryStream(), { mergeAfterMs: 0 });
  onTestFinished(() => compactor.stop());
  await waitFor('the operator sees it', () => warnings(compactor.facts()).length > 0, 30_000);
  expect(warnings(compactor.facts())[0]?.message).toContain('perl');
  expect((await listFiles(lakeDir)).some(isMerged)).toBe(false);
}, 60_000);

test('Events of the stream for old days are sealed and merged, those of today are not', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const lakeDir = path.join(folder, 'lake');
  const options = { sealAgeMs: 20, retentionMs: 1000, mergeAfterMs: 172_800_000 };
  const compactor = await startTestCompact(folder, stream, options);
  const isSealed = async (rows: number): Promise<boolean> => {
    const files = await listFiles(lakeDir);
    return files.every(({ young }) => !young) && files.reduce((sum, file) => sum + (file.numRecords ?? 0), 0) === rows;
  };
  for (let round = 1; round <= 3; round += 1) {
    stream.publish([eventLine({ event_time: 1_700_000_000 + round }), eventLine()]);
    await waitFor('the events are sealed', () => isSealed(2 * round), 60_000);
  }
  await waitFor('the old day is merged', async () => (await listFiles(lakeDir)).filter(isOld).some(isMerged), 60_000);
  await compactor.stop();
  const today = (await listFiles(lakeDir)).filter((file) => !isOld(file));
  expect(today.length).toBeGreaterThan(1);
  expect(today.some(isMerged)).toBe(false);
  expect(await readRows(folder, 'event_id')).toHaveLength(6);
}, 120_000);
