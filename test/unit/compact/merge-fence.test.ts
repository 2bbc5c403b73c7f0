import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { AddAction } from '../../../src/lake/log/actions.ts';
import { isMergedPath } from '../../../src/lake/log/young-folder.ts';
import { dayFolder, openMergeableDay, readGlob, readLog, retentionMs } from '../../helpers/sealed-day.ts';

const countedAsMore = (add: AddAction): AddAction => ({
  ...add,
  stats: String(add.stats).replace('"numRecords":100', '"numRecords":101'),
});

test('A merge that wrote another number of rows than the log counts is refused', async () => {
  const { table, merge } = await openMergeableDay(2, 100);
  await table.commit(({ files }) => ({
    cause: 'replay',
    actions: [...files.values()].map((add) => ({ add: countedAsMore(add) })),
  }));
  const { version } = table.state();
  await expect(merge()).rejects.toMatchObject({
    code: 'file_damaged',
    message: 'a merge of 202 rows read 200 and wrote 200',
  });
  expect(table.state().version).toBe(version);
});

test('Readers of folders keep the former files until the folder is exchanged, and the retention has passed', async () => {
  const { lakeDir, table, clock, merge, show, clean } = await openMergeableDay(2, 100);
  const rows = await readLog(lakeDir);
  await merge();
  clock.now += retentionMs - 1;
  expect(await show()).toBe(0);
  clock.now += 1;
  // A vacuum that comes first.
  await clean();
  expect(await readGlob(lakeDir)).toEqual(rows);
  expect(await show()).toBe(1);
  await clean();
  expect(await readGlob(lakeDir)).toEqual(rows);
  const names = await readdir(path.join(table.dir, dayFolder));
  expect(names.every(isMergedPath)).toBe(true);
});
