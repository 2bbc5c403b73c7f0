import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { checkLake } from '../../../src/lake/check.ts';
import { changeSteps, recoverChanges } from '../../../src/lake/files/change.ts';
import { assertFilesIntact } from '../../../src/lake/files/data-file.ts';
import { mergedFolderSteps, removeFormerFolders } from '../../../src/lake/files/merged-folders.ts';
import { listDeferredReplacements } from '../../../src/lake/files/deferred-replacement.ts';
import type { DataFile } from '../../../src/lake/log/snapshot.ts';
import type { Table } from '../../../src/lake/log/table.ts';
import type { CrashPoint } from '../../../src/runtime/crash-point.ts';
import { createRandom } from '../../../src/demo/random.ts';
import { damageFile } from '../../helpers/damage.ts';
import { inTurn, oneTestIn } from '../../helpers/in-turn.ts';
import {
  addHour,
  dayFolder,
  expectSortedByApp,
  openMergeableDay,
  readGlob,
  readLog,
  retentionMs,
} from '../../helpers/sealed-day.ts';

beforeEach(oneTestIn(2));

const listShown = async (table: Table): Promise<string[]> =>
  (await readdir(path.join(table.dir, dayFolder))).toSorted();
const publishedNames = (files: readonly DataFile[]): string[] =>
  files.map(({ publishedPath = '' }) => path.basename(publishedPath)).toSorted();

test('A day becomes files sorted by app and time, cut between apps, and readers of folders see them after the retention', async () => {
  const { lakeDir, table, clock, merge, show, clean } = await openMergeableDay(12);
  const before = table.snapshot().files;
  const rows = await readLog(lakeDir);
  expect(rows).toMatchObject({ rows: 12_000, ids: 12_000 });
  const shown = await listShown(table);
  const merged = await merge();
  expect(merged).toMatchObject({ filesIn: 12, rows: 12_000 });
  const { files } = table.snapshot();
  expect(files.length).toBeLessThanOrEqual(8);
  expect(files.length).toBeGreaterThanOrEqual(3);
  expect(files.every(({ groups }) => groups !== undefined)).toBe(true);
  expect(Math.max(...files.map((file) => file.sizeBytes))).toBeLessThan(
    before.reduce((sum, file) => sum + file.sizeBytes, 0) / 4,
  );
  await expectSortedByApp(files);
  expect(await readLog(lakeDir)).toEqual(rows);

  clock.now += retentionMs - 1;
  expect(await show()).toBe(0);
  await clean();
  expect(await listShown(table)).toEqual(shown);
  clock.now += 1;
  await assertFilesIntact(before);
  expect(await show()).toBe(1);
  expect(await listShown(table)).toEqual(publishedNames(files));
  expect(await readGlob(lakeDir)).toEqual(rows);
  await clean();
  expect(await readGlob(lakeDir)).toEqual(rows);
  expect(await readdir(path.join(table.dir, '_sealed', dayFolder))).toHaveLength(files.length);
  expect((await checkLake(lakeDir)).problems).toEqual([]);
});

test('Readers of the glob and of the log find every row once at each step, killed or not', async () => {
  const { lakeDir, table, stagingDir, clock, merge, show, clean } = await openMergeableDay(4, 200);
  const rows = await readLog(lakeDir);
  const look = async (when: string): Promise<void> => {
    expect([await readGlob(lakeDir), await readLog(lakeDir)], when).toEqual([rows, rows]);
  };
  const killAt =
    (wanted: string): CrashPoint =>
    async (step) => {
      await look(step);
      if (step === wanted) throw new Error(`killed at ${wanted}`);
    };
  for (const step of inTurn(changeSteps, 2)) {
    await expect(merge(killAt(step))).rejects.toThrow('killed');
    await look(`killed at ${step}`);
    await recoverChanges(table, stagingDir);
    await table.refresh();
    await look(`recovered after ${step}`);
    expect((await checkLake(lakeDir)).problems, step).toEqual([]);
    // The next round merges again what is committed.
    if (table.lake().cause !== 'merge') continue;
    for (const at of mergedFolderSteps) {
      clock.now += retentionMs;
      await expect(show(killAt(at))).rejects.toThrow('killed');
      await look(`killed at ${at}`);
      await clean();
      await look(`cleaned after ${at}`);
    }
    await show();
    await clean();
    await removeFormerFolders(stagingDir, 0);
    await look(`shown after ${step}`);
    expect(await listShown(table)).toEqual(publishedNames(table.snapshot().files));
    expect((await readdir(stagingDir)).length, step).toBe(0);
  }
}, 300_000);

test('What is sealed, rewritten or erased while a merge waits for its readers is shown in time, and no row twice', async () => {
  const { lakeDir, table, clock, merge, show, renew, clean, rewrite } = await openMergeableDay(4);
  const first = await merge();
  const before = await readGlob(lakeDir);
  clock.now += retentionMs / 2;
  // Late rows are shown at once, next to what the merge replaces.
  await addHour(table, clock, 30, 50);
  await renew();
  expect(await readGlob(lakeDir)).toMatchObject({ rows: 4050, ids: 4050 });
  const late = table.snapshot().files.find((file) => file.path.includes('hour-30'));
  if (late === undefined) throw new Error('no late file');
  // A rewrite of both: that of the merge is shown with it, the other one later.
  const of3 = table.snapshot().files.filter((file) => file.maxValues['id_app'] === appOfErased);
  expect(of3).toHaveLength(1);
  const erased = 2;
  await rewrite(of3, `event_id NOT IN (SELECT event_id FROM (${idsOf(of3)}))`, erased);
  await rewrite([late], 'true', 0);
  const rows = await readLog(lakeDir);
  expect(rows).toMatchObject({ rows: 4050 - erased, ids: 4050 - erased });
  expect(await readGlob(lakeDir)).toMatchObject({ rows: 4050 });
  clock.now += retentionMs / 2;
  expect(await renew()).toBe(0);
  expect(await show()).toBe(1);
  await clean();
  expect(await readGlob(lakeDir)).toEqual(rows);
  expect(await listDeferredReplacements(table.dir, table.snapshot().files)).toHaveLength(1);
  clock.now += retentionMs / 2;
  expect(await renew()).toBe(1);
  await clean();
  expect(await readGlob(lakeDir)).toEqual(rows);
  expect(before.rows).toBe(4000);
  expect(first.filesOut).toBeGreaterThan(1);
  expect((await checkLake(lakeDir)).problems).toEqual([]);
});

const appOfErased = 199;
const idsOf = (files: readonly DataFile[]): string =>
  `SELECT event_id FROM read_parquet('${files[0]?.absolutePath}') WHERE id_app = ${appOfErased} ORDER BY event_id LIMIT 2`;

test('A damaged file is not merged, a damaged merge is not shown, and an input that was replaced meanwhile stops the commit', async () => {
  const { lakeDir, table, clock, merge, show, clean, rewrite } = await openMergeableDay(4);
  const [damaged, ...others] = table.snapshot().files;
  if (damaged === undefined || others[0] === undefined) throw new Error('no files');
  const rows = await readLog(lakeDir);
  let isRewritten = false;
  const rewriteFirst: CrashPoint = async (step) => {
    if (step !== 'change-written' || isRewritten) return;
    isRewritten = true;
    await rewrite(others.slice(0, 1), 'true', 0);
  };
  await expect(merge(rewriteFirst)).rejects.toMatchObject({ code: 'commit_conflict' });
  expect(await readLog(lakeDir)).toEqual(rows);
  await merge();
  const [output] = table.snapshot().files;
  damageFile(output?.absolutePath ?? '', 'flip', createRandom(1));
  clock.now += 2 * retentionMs;
  await expect(show()).rejects.toMatchObject({ code: 'file_damaged' });
  await clean();
  expect(await readGlob(lakeDir)).toEqual(rows);
  const second = await openMergeableDay(2);
  damageFile(second.table.snapshot().files[0]?.absolutePath ?? '', 'flip', createRandom(1));
  await expect(second.merge()).rejects.toMatchObject({ code: 'file_damaged' });
});
