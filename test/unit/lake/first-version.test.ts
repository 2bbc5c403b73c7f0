import { expect, test } from 'vitest';
import { createVersionSearch, type FirstVersion } from '../../../src/lake/log/change-feed.ts';
import { tableStore } from '../../../src/lake/log/log-files.ts';
import { appendLines, type LedgerLine } from '../../../src/lake/log/version-ledger.ts';
import type { Snapshot } from '../../../src/lake/log/snapshot.ts';
import { testFolder } from '../../helpers/folder.ts';

const lineAt = (version: number, availableAtMs: number): LedgerLine => ({
  version,
  point: { version, availableAtMs, tag: '0123abcd' },
});

const findFirstVersion = (snapshot: Snapshot, atMs: number): Promise<FirstVersion> =>
  createVersionSearch().find(snapshot, atMs);

test('The version that added rows is found in the ledger, long after its commit was trimmed', async () => {
  const tableDir = testFolder();
  // Versions 3, 5 and 9 add rows. Those between repeat the previous time.
  await appendLines(tableStore(tableDir), [
    lineAt(0, 0),
    lineAt(3, 1000),
    lineAt(5, 2000),
    lineAt(9, 3000),
    lineAt(12, 3000),
  ]);
  const snapshot = { tableDir, version: 12, lake: undefined } as Snapshot;
  const found = await Promise.all([1000, 2000, 3000].map((at) => findFirstVersion(snapshot, at)));
  expect(found).toEqual([
    { version: 3, orEarlier: false },
    { version: 5, orEarlier: false },
    { version: 9, orEarlier: false },
  ]);
});

test('Rows older than the ledger are in its first version, or in an earlier one', async () => {
  const tableDir = testFolder();
  await appendLines(tableStore(tableDir), [{ version: 0, point: undefined }, lineAt(40, 5000), lineAt(41, 6000)]);
  const snapshot = { tableDir, version: 41, lake: undefined } as Snapshot;
  expect(await findFirstVersion(snapshot, 70)).toEqual({ version: 40, orEarlier: true });
  expect(await findFirstVersion(snapshot, 6000)).toEqual({ version: 41, orEarlier: false });
  const alone = { tableDir: testFolder(), version: 0, lake: undefined } as Snapshot;
  expect(await findFirstVersion(alone, 70)).toEqual({ version: 0, orEarlier: false });
});

test('A search with a cache finds the same as one without, while commits are added and after a clock repair', async () => {
  const tableDir = testFolder();
  const search = createVersionSearch();
  let lines: LedgerLine[] = [];
  for (const versions of [1, 2, 7, 64, 65, 300]) {
    const more = Array.from({ length: versions - lines.length }, (_, n) =>
      lineAt(lines.length + n, (lines.length + n) * 10),
    );
    await appendLines(tableStore(tableDir), more);
    lines = [...lines, ...more];
    const snapshot = { tableDir, version: lines.length - 1, lake: undefined } as Snapshot;
    for (let version = 0; version < lines.length; version += 1)
      expect((await search.find(snapshot, version * 10)).version).toBe(version);
  }
  // The repair moves the times of a clock that was ahead back by at least half a second.
  const repair = { version: 299, toMs: 500, upToMs: 2990, steps: undefined };
  const lake = { restamps: [repair] } as unknown as NonNullable<Snapshot['lake']>;
  const repaired = { tableDir, version: 299, lake } as Snapshot;
  expect((await findFirstVersion(repaired, 505)).version).toBe(299);
  expect((await search.find(repaired, 505)).version).toBe(299);
});
