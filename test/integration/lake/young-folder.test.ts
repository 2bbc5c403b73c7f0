import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { holdsEvents } from '../../../src/lake/files/data-file.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { logFolder } from '../../../src/lake/log/log-files.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { formerYoungFolders } from '../../../src/lake/log/young-folder.ts';
import { testFolder } from '../../helpers/folder.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

const [formerYoungFolder] = formerYoungFolders;

/** Moves the young files to their folder of versions up to 0.2, in the log and on disk. */
async function moveToFormerFolder(lakeDir: string): Promise<string> {
  const paths = lakePaths(lakeDir);
  const table = await openTable(paths.table, { clock: createClock(0), crashPoint: noCrashPoint });
  const former = path.join(paths.table, formerYoungFolder);
  renameSync(paths.young, former);
  await table.commit((state) => ({
    cause: 'flush',
    actions: [...state.files.values()].flatMap((add) => [
      { remove: { path: add.path, deletionTimestamp: 1, dataChange: false } },
      { add: { ...add, path: `${formerYoungFolder}/${path.basename(add.path)}` } },
    ]),
  }));
  return former;
}

test('A lake with young files in the former folder is read, checked, sealed and swept, and the folder is removed with its last file', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { table } = lakePaths(lakeDir);
  const stream = createMemoryStream();
  const first = await startTestCompact(folder, stream);
  stream.publish([eventLine({ age: 1 }), eventLine({ age: 2 })]);
  await waitFor('flushed', async () => (await readSnapshot(table)).files.length === 1);
  await first.stop();
  const former = await moveToFormerFolder(lakeDir);
  const ages = async (): Promise<unknown[]> =>
    (await readRows(folder, 'age')).map((row) => row['age']).toSorted((a, b) => Number(a) - Number(b));
  expect(await holdsEvents(lakeDir)).toBe(true);
  expect(await ages()).toEqual([1, 2]);
  expect((await readSnapshot(table)).files.map((file) => file.young)).toEqual([true]);
  expect((await checkLake(lakeDir)).problems).toEqual([]);
  writeFileSync(path.join(former, 'leftover.parquet'), '');
  expect((await checkLake(lakeDir)).problems).toMatchObject([
    {
      problem: 'unreferenced_file',
      path: 'events/fresh/leftover.parquet',
      detail: expect.stringContaining('next start') as string,
    },
  ]);

  const second = await startTestCompact(folder, stream, { sealAgeMs: 10, retentionMs: 1000 });
  stream.publish([eventLine({ age: 3 })]);
  await waitFor(
    'sealed',
    async () => (await ages()).length === 3 && (await readSnapshot(table)).files.every((file) => !file.young),
  );
  await waitFor('the former young files are removed', () => !existsSync(former) || readdirSync(former).length === 0);
  await second.stop();
  const third = await startTestCompact(folder, stream);
  await waitFor('the former folder is removed', () => !existsSync(former));
  await third.stop();
  expect(await ages()).toEqual([1, 2, 3]);
  expect((await checkLake(lakeDir)).problems).toEqual([]);
});

test('A lake that has lost its log is not recreated next to young files', async () => {
  const folder = testFolder();
  const paths = lakePaths(path.join(folder, 'lake'));
  mkdirSync(paths.young, { recursive: true });
  writeFileSync(path.join(paths.young, 'a.parquet'), '');
  await expect(startTestCompact(folder, createMemoryStream())).rejects.toMatchObject({
    code: 'log_damaged',
    message: expect.stringContaining('no log') as string,
  });
  rmSync(path.join(paths.young, 'a.parquet'));
  await (await startTestCompact(folder, createMemoryStream())).stop();
  expect(readdirSync(logFolder(paths.table)).length).toBeGreaterThan(0);
});
