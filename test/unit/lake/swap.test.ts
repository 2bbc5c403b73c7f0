import { randomUUID } from 'node:crypto';
import { copyFile, readdir, rename } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { createRandom } from '../../../src/demo/random.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { listSwaps, rewrittenFolder, swapDue } from '../../../src/lake/files/swap.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { assertFilesWhole } from '../../../src/lake/files/verify-files.ts';
import { vacuum } from '../../../src/lake/clean.ts';
import { ensureFolder } from '../../../src/runtime/files/durable-file.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { damageFile } from '../../helpers/damage.ts';
import { testFolder } from '../../helpers/folder.ts';
import { addSealedFile } from '../../helpers/sealed-file.ts';

const retentionMs = 60_000;

/** A lake in which some sealed files have been replaced by rewrites, which wait for their places. */
async function withRewrites(count: number) {
  const lakeDir = path.join(testFolder(), 'lake');
  const paths = lakePaths(lakeDir);
  for (let n = 0; n < count; n += 1) await addSealedFile(lakeDir, 100 + n, 3);
  const removedAtMs = Date.now();
  const clock = { nowMs: () => removedAtMs };
  const table = await openTable(paths.table, { clock, crashPoint: noCrashPoint });
  await ensureFolder(path.join(table.dir, rewrittenFolder));
  const before = table.snapshot().files;
  for (const file of before) {
    const relative = `${rewrittenFolder}/${randomUUID()}.parquet`;
    await copyFile(file.absolutePath, path.join(table.dir, relative));
    await table.commit((state) => {
      const add = state.files.get(encodeURI(file.path));
      if (add === undefined) throw new Error(`there is no ${file.path}`);
      return {
        cause: 'erase',
        actions: [
          { remove: { path: add.path, deletionTimestamp: removedAtMs, dataChange: true } },
          { add: { ...add, path: relative, tags: { ...add.tags, replaces: add.path } } },
        ],
      };
    });
  }
  const options = (nowMs: number) => ({ nowMs, retentionMs, stagingDir: paths.staging, crashPoint: noCrashPoint });
  return { table, before, paths, removedAtMs, options };
}

test('A rewrite takes its place, and a replaced file is removed, only after the retention', async () => {
  const { table, before, removedAtMs, options } = await withRewrites(2);
  expect(await swapDue(table, options(removedAtMs + retentionMs - 1))).toBe(0);
  // The removal of the files is old enough for a vacuum: the glob still needs them.
  await vacuum(table, options(removedAtMs + 2 * retentionMs));
  await assertFilesWhole(before);
  expect(await swapDue(table, options(removedAtMs + retentionMs))).toBe(2);
  expect(table.snapshot().files.map((file) => file.path)).toEqual(before.map((file) => file.path));
  expect(listSwaps(table.state())).toEqual([]);
  await vacuum(table, options(removedAtMs + 3 * retentionMs));
  expect(await readdir(path.join(table.dir, rewrittenFolder))).toEqual([]);
  await assertFilesWhole(table.snapshot().files);
});

test('A damaged rewrite takes no place, since the file as it was is the only copy, and delays no other', async () => {
  const { table, before, removedAtMs, options } = await withRewrites(2);
  const [damaged] = table.snapshot().files.filter((file) => file.replaces !== undefined);
  damageFile(damaged?.absolutePath ?? '', 'flip', createRandom(1));
  await expect(swapDue(table, options(removedAtMs + retentionMs))).rejects.toMatchObject({
    code: 'file_damaged',
    message: expect.stringContaining(String(damaged?.absolutePath)),
  });
  expect(listSwaps(table.state())).toHaveLength(1);
  await assertFilesWhole(before);
  await rename(path.join(table.dir, damaged?.replaces ?? ''), path.join(table.dir, damaged?.path ?? ''));
  expect(await swapDue(table, options(removedAtMs + retentionMs))).toBe(1);
  await assertFilesWhole(table.snapshot().files);
});
