import { cp, readdir } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { eraseEvents } from '../../../src/admin/erase/erase.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { isMergedPath } from '../../../src/lake/log/young-folder.ts';
import { readSnapshot, withEmptyFile, type DataFile } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../../src/lake/sql/literals.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { localFiles } from '../../../src/runtime/store/open-store.ts';
import { connectS3Folders } from '../../../src/runtime/store/s3-folders.ts';
import { backUp, restore } from '../../helpers/backup.ts';
import { fakeBucket, startFakeS3 } from '../../helpers/fake-s3.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, query, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { dayFolder, openMergeableDay, readGlob, readLog } from '../../helpers/sealed-day.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

const isMerged = ({ publishedPath = '' }: DataFile): boolean => isMergedPath(publishedPath);
const listShown = (lakeDir: string): Promise<string[]> => readdir(path.join(lakePaths(lakeDir).table, dayFolder));

test('In a bucket a day is merged by the log alone, and its former files are removed after the retention', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { endpoint, objects } = await startFakeS3();
  const { bucket, ...settings } = fakeBucket(endpoint);
  const places = { [lakeDir]: { bucket, prefix: 'lake' } };
  const connection = { ...settings, dataDir: folder, places, cacheMaxBytes: 1 << 30, leaseMs: 15_000 };
  const folders = await connectS3Folders(connection);
  onTestFinished(() => folders.close());
  const readFiles = async (): Promise<readonly DataFile[]> => (await readSnapshot(lakePaths(lakeDir).table)).files;
  const stream = createMemoryStream();
  const options = { sealAgeMs: 20, retentionMs: 1000, mergeAfterMs: 0 };
  const compactor = await startTestCompact(folder, stream, options);
  onTestFinished(() => compactor.stop());
  const ids: string[] = [];
  for (let round = 1; round <= 2; round += 1) {
    const lines = [1, 2].map((idApp) => eventLine({ id_app: idApp, event_time: 1_700_000_000 + round }));
    stream.publish(lines);
    ids.push(...lines.map((line) => String(line['event_id'])));
    await waitFor(
      'the events are sealed',
      async () => {
        const files = await readFiles();
        return (
          files.every(({ young }) => !young) &&
          files.reduce((sum, file) => sum + (file.numRecords ?? 0), 0) === ids.length
        );
      },
      30_000,
    );
  }
  await waitFor('the day is merged', async () => (await readFiles()).every(isMerged), 30_000);
  const listData = (): string[] =>
    [...objects.keys()].filter((key) => /\/_?(sealed|young|kind=).*\.parquet$/.test(key));
  await waitFor('only the merged file is left', async () => listData().length === 1, 30_000);
  await compactor.stop();
  const snapshot = await readSnapshot(lakePaths(lakeDir).table);
  const rows = await localFiles.use(withEmptyFile(snapshot, snapshot.files), (files) =>
    query(`SELECT event_id FROM read_parquet(${sqlList(files)}, union_by_name = true) ORDER BY event_id`),
  );
  expect(rows.map((row) => row['event_id'])).toEqual(ids.toSorted());
  expect((await checkLake(lakeDir)).problems).toEqual([]);
  expect([...objects.keys()].filter((key) => key.includes('/staging/'))).toEqual([]);
}, 120_000);

test('An erasure in the middle of a merge ends it, and no file of the lake has the erased rows', async () => {
  const { folder, lakeDir, table, stagingDir, open, merge } = await openMergeableDay(4, 200);
  const isErased = "custom_user_id = 'user-3'";
  const count = async (where: string): Promise<number> => {
    const files = `'${path.join(lakeDir, '**', '*.parquet')}'`;
    const [row] = await query(
      `SELECT count(*)::INT AS n FROM read_parquet(${files}, union_by_name = true) WHERE ${where}`,
    );
    return Number(row?.['n']);
  };
  expect(await count(isErased)).toBeGreaterThan(0);
  const before = await readLog(lakeDir);
  const merging = await open();
  const late = await open();
  // The plan and a file; of the other merge all files.
  for (let step = 0; step < 2; step += 1) expect(await merging.step()).toBe(true);
  while (await late.step());

  const clock = createClock(0);
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream, { retentionMs: 60_000 });
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const own = await openTable(table.dir, { clock, crashPoint: noCrashPoint });
  const dependencies = { table: own, lakeDir, duckdb, clock, crashPoint: noCrashPoint };
  const { signal } = new AbortController();
  const erasing = { ...dependencies, publisher: stream.publisher, signal };
  const erase = (now: boolean) => eraseEvents(erasing, { users: ['user-3'] }, { retentionMs: 60_000, now });
  const { rows } = await erase(false);
  expect(rows).toBeGreaterThan(0);

  await expect(late.commit()).rejects.toMatchObject({ code: 'commit_conflict' });
  await expect(merging.step()).rejects.toMatchObject({ code: 'commit_conflict' });
  for (const ended of [merging, late]) await ended.close();
  expect(await readdir(stagingDir)).toEqual([]);
  const left = await readLog(lakeDir);
  expect(await merge()).toMatchObject({ filesIn: 4, rows: before.rows - rows });
  // Without time for readers, the merge is shown at once.
  await erase(true);
  await compactor.stop();
  expect(await count(isErased)).toBe(0);
  expect([await readGlob(lakeDir), await readLog(lakeDir)]).toEqual([left, left]);
}, 60_000);

test('A copy without links and a restored backup show a day whose merge waits for its readers', async () => {
  const { folder, lakeDir, merge } = await openMergeableDay(4, 200);
  const rows = await readLog(lakeDir);
  await merge();
  const root = testFolder();
  const copy = path.join(root, 'copy');
  await cp(folder, copy, { recursive: true });
  await backUp(folder, path.join(root, 'backup'), undefined);
  const restored = path.join(root, 'restored');
  await restore(path.join(root, 'backup'), restored);
  expect((await listShown(path.join(restored, 'lake'))).every(isMergedPath)).toBe(true);

  const copied = path.join(copy, 'lake');
  expect((await listShown(copied)).some(isMergedPath)).toBe(false);
  const compactor = await startTestCompact(copy, createMemoryStream(), { retentionMs: 1500, sealAgeMs: 500 });
  onTestFinished(() => compactor.stop());
  await waitFor('the copy shows the merged files', async () => (await listShown(copied)).every(isMergedPath), 30_000);
  await compactor.stop();
  for (const lake of [copied, path.join(restored, 'lake')]) {
    expect([await readGlob(lake), await readLog(lake)]).toEqual([rows, rows]);
    expect((await checkLake(lake)).problems).toEqual([]);
  }
}, 60_000);
