import { expect, test } from 'vitest';
import { findFirstVersion } from '../../../src/lake/log/first-version.ts';
import { appendLines, type LedgerLine } from '../../../src/lake/log/version-ledger.ts';
import type { Snapshot } from '../../../src/lake/log/snapshot.ts';
import { testFolder } from '../../helpers/folder.ts';

const lineAt = (version: number, availableAtMs: number): LedgerLine => ({
  version,
  point: { version, availableAtMs, mark: '0123abcd' },
});

test('The version that brought rows is found in the ledger, long after its commit was trimmed', async () => {
  const tableDir = testFolder();
  // Versions 3, 5 and 9 bring rows; those between say what the one before said.
  await appendLines(tableDir, [lineAt(0, 0), lineAt(3, 1000), lineAt(5, 2000), lineAt(9, 3000), lineAt(12, 3000)]);
  const snapshot = { tableDir, version: 12, lake: undefined } as Snapshot;
  const found = await Promise.all([1000, 2000, 3000].map((at) => findFirstVersion(snapshot, at)));
  expect(found).toEqual([
    { version: 3, orEarlier: false },
    { version: 5, orEarlier: false },
    { version: 9, orEarlier: false },
  ]);
});

test('Rows from before the ledger began came with the first version that it knows, or earlier', async () => {
  const tableDir = testFolder();
  await appendLines(tableDir, [{ version: 0, point: undefined }, lineAt(40, 5000), lineAt(41, 6000)]);
  const snapshot = { tableDir, version: 41, lake: undefined } as Snapshot;
  expect(await findFirstVersion(snapshot, 70)).toEqual({ version: 40, orEarlier: true });
  expect(await findFirstVersion(snapshot, 6000)).toEqual({ version: 41, orEarlier: false });
  const alone = { tableDir: testFolder(), version: 0, lake: undefined } as Snapshot;
  expect(await findFirstVersion(alone, 70)).toEqual({ version: 0, orEarlier: false });
});
