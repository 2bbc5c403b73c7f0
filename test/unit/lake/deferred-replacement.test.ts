import { cp, link, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { createRandom } from '../../../src/demo/random.ts';
import { vacuum } from '../../../src/lake/cleanup.ts';
import {
  findPublished,
  listDeferredReplacements,
  applyDueReplacements,
  restoreFromPublishedPaths,
} from '../../../src/lake/files/deferred-replacement.ts';
import { rewriteFiles } from '../../../src/lake/files/rewrite.ts';
import { assertFilesIntact } from '../../../src/lake/files/data-file.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { openTable, type Table } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { damageFile } from '../../helpers/damage.ts';
import { testFolder } from '../../helpers/folder.ts';
import { addSealedFile } from '../../helpers/sealed-file.ts';

const retentionMs = 60_000;

/** Creates a lake with sealed files of an earlier version, and a function that rewrites all files. */
async function openSealed(count: number) {
  const lakeDir = path.join(testFolder(), 'lake');
  const paths = lakePaths(lakeDir);
  for (let n = 0; n < count; n += 1) await addSealedFile(lakeDir, 100 + n, 3);
  const clock = { now: Date.now(), nowMs: () => clock.now };
  const table = await openTable(paths.table, { clock, crashPoint: noCrashPoint });
  const rewriteAll = async (): Promise<void> => {
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    const rewrites = table
      .snapshot()
      .files.map((file) => ({ file, rowsLeftOut: 0, toQuery: (rows: string) => `FROM ${rows} ORDER BY age` }));
    const work = { table, stagingDir: paths.staging, duckdb, clock, crashPoint: noCrashPoint };
    await rewriteFiles(work, rewrites, { cause: 'enrich' });
    duckdb.close();
  };
  const renew = (atMs = clock.now) =>
    applyDueReplacements(table, { nowMs: atMs, retentionMs, stagingDir: paths.staging, crashPoint: noCrashPoint });
  return { table, clock, before: table.snapshot().files, rewriteAll, renew };
}

const listUnshownOf = (table: Table) => listDeferredReplacements(table.dir, table.snapshot().files);
const options = (nowMs: number) => ({ nowMs, retentionMs, crashPoint: noCrashPoint });

test('A rewrite is shown, and a replaced file removed, only after the retention', async () => {
  const { table, before, clock, rewriteAll, renew } = await openSealed(2);
  await rewriteAll();
  expect(await renew(clock.now + retentionMs - 1)).toBe(0);
  // Their removal is old enough for a vacuum, but the glob still needs the files.
  await vacuum(table, options(clock.now + 2 * retentionMs));
  await assertFilesIntact(before);
  const { version } = table.state();
  expect(await renew(clock.now + retentionMs)).toBe(2);
  expect(table.state().version).toBe(version);
  expect(new Set(table.snapshot().files.map((file) => file.publishedPath))).toEqual(
    new Set(before.map((file) => file.path)),
  );
  expect(await listUnshownOf(table)).toEqual([]);
  await vacuum(table, options(clock.now + 3 * retentionMs));
  expect(await listUnshownOf(table)).toEqual([]);
  await assertFilesIntact(table.snapshot().files);
});

test('A rewrite of a waiting rewrite is shown when the first would have been, and a rewrite of a shown one waits', async () => {
  const { table, clock, rewriteAll, renew } = await openSealed(1);
  await rewriteAll();
  clock.now += retentionMs / 2;
  await rewriteAll();
  expect(await renew(clock.now + retentionMs / 2 - 1)).toBe(0);
  clock.now += retentionMs / 2;
  expect(await renew()).toBe(1);
  await rewriteAll();
  expect(await renew(clock.now + retentionMs - 1)).toBe(0);
  expect(await renew(clock.now + retentionMs)).toBe(1);
  // Each unread file is removed, under both of its names.
  await vacuum(table, options(clock.now + 2 * retentionMs));
  const sealed = (await readdir(table.dir, { recursive: true })).filter((name) =>
    /^(_sealed|kind=).*\.parquet$/.test(name),
  );
  expect(new Set(sealed)).toEqual(new Set(table.snapshot().files.flatMap((file) => [file.path, file.publishedPath])));
});

test('A damaged rewrite is not shown, since the old file is the only copy, and delays no other', async () => {
  const { table, before, clock, rewriteAll, renew } = await openSealed(2);
  await rewriteAll();
  const [damaged] = table.snapshot().files;
  const copy = `${damaged?.absolutePath}.copy`;
  await cp(damaged?.absolutePath ?? '', copy);
  damageFile(damaged?.absolutePath ?? '', 'flip', createRandom(1));
  await expect(renew(clock.now + retentionMs)).rejects.toMatchObject({
    code: 'file_damaged',
    message: expect.stringContaining(String(damaged?.absolutePath)) as string,
  });
  expect(await listUnshownOf(table)).toHaveLength(1);
  await assertFilesIntact(before.filter((file) => file.path === damaged?.publishedPath));
  await rename(copy, damaged?.absolutePath ?? '');
  expect(await renew(clock.now + retentionMs)).toBe(1);
  await assertFilesIntact(table.snapshot().files);
});

test('A copy without links, a missing link and a missing file are repaired', async () => {
  const { table, clock, rewriteAll, renew } = await openSealed(2);
  await rewriteAll();
  clock.now += retentionMs;
  await renew();
  const [first, second] = table.snapshot().files;
  if (first?.publishedPath === undefined || second?.publishedPath === undefined) throw new Error('no sealed files');
  await cp(first.absolutePath, path.join(table.dir, 'copy'));
  await rename(path.join(table.dir, 'copy'), path.join(table.dir, first.publishedPath));
  expect(await findPublished(table.dir, first)).toBe('another');
  await rm(path.join(table.dir, second.publishedPath));
  expect(await renew()).toBe(2);
  expect(await listUnshownOf(table)).toEqual([]);
  await rm(first.absolutePath);
  expect(await restoreFromPublishedPaths(table)).toBe(1);
  await assertFilesIntact(table.snapshot().files);
  await rm(second.absolutePath);
  await link(first.absolutePath, second.absolutePath);
  expect(await restoreFromPublishedPaths(table)).toBe(1);
  await assertFilesIntact(table.snapshot().files);
});
