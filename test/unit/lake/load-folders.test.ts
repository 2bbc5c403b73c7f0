import { statSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { openLoadFolder, sweepLoadFolders } from '../../../src/lake/files/load-folders.ts';
import { ensureLake, openDatasetTable } from '../../../src/lake/lake.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { tableFolderMode } from '../../../src/runtime/files/group-access.ts';
import { testFolder } from '../../helpers/folder.ts';
import { payments } from '../../helpers/revenue.ts';

test('Of many loads that begin at once each has a folder of its own, which the others leave alone', async () => {
  const lakeDir = path.join(testFolder(), 'lake');
  const options = { clock: createClock(0), retentionMs: 3_600_000, crashPoint: noCrashPoint };
  await ensureLake(lakeDir, options);
  const table = await openDatasetTable(lakeDir, payments, options);
  const opened = new AbortController();
  const sweep = async (): Promise<void> => {
    while (!opened.signal.aborted) await sweepLoadFolders(table);
  };
  const sweeping = sweep();
  const opening = Array.from({ length: 8 }, () => openLoadFolder(table, 'a load'));
  await Promise.allSettled(opening);
  opened.abort();
  await sweeping;
  const folders = await Promise.all(opening);
  expect(new Set(folders.map(({ dir }) => dir)).size).toBe(8);
  for (const { dir, workDir } of folders) {
    expect(statSync(workDir).isDirectory()).toBe(true);
    expect(statSync(dir).mode & 0o777).toBe(tableFolderMode & ~process.umask());
  }
  await Promise.all(folders.map((folder) => folder.close()));
});
