import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import {
  createStateSearch,
  findSinceMs,
  nextCursor,
  parseCursor,
  findVersionUnavailableReason,
  type AvailableVersions,
} from '../../../src/lake/log/change-feed.ts';
import { emptyTotals, type LakeState } from '../../../src/lake/log/lake-state.ts';
import { commitName, logFolder, renderCommit, tableStore } from '../../../src/lake/log/log-files.ts';
import type { Snapshot } from '../../../src/lake/log/snapshot.ts';
import { appendLines, noTag, type LedgerLine } from '../../../src/lake/log/version-ledger.ts';
import { testFolder } from '../../helpers/folder.ts';

const [ours, theirs] = ['0123abcd', '89abcdef'];

const line = (version: number, availableAtMs: number, tag: string): LedgerLine => ({
  version,
  point: { version, availableAtMs, tag },
});

/** Creates a lake of two tables whose ledgers have versions with rows. */
async function openLake() {
  const lakeDir = testFolder();
  const [tableDir, other] = ['events', 'payments'].map((name) => path.join(lakeDir, name)) as [string, string];
  for (const folder of [tableDir, other]) mkdirSync(folder);
  await appendLines(tableStore(tableDir), [{ version: 0, point: undefined }, line(2, 1000, ours), line(5, 2000, ours)]);
  await appendLines(tableStore(other), [line(2, 9000, theirs)]);
  return { tableDir, version: 5, lake: undefined } as Snapshot;
}

const placeOf = (text: string) => parseCursor(text) ?? { version: -1, tag: undefined };

test.for(['0', '7', '7-0123abcd', '123456789012'])('The cursor %s is parsed and rendered unchanged', (text) => {
  const { version, tag } = placeOf(text);
  expect(tag === undefined ? String(version) : `${version}-${tag}`).toBe(text);
});

test.for(['', '-1', '01', '1.0', '1-', '1-0123ABCD', '1-0123abc', '1-0123abcd0', ' 1', '1234567890123', '1e3'])(
  'The text %j is not a cursor',
  (text) => expect(parseCursor(text)).toBeUndefined(),
);

test('Rows after a cursor are those later than the newest rows of its version', async () => {
  const snapshot = await openLake();
  const found = [];
  for (const text of ['0', '2', '4', '5', `2-${ours}`, `5-${ours}`])
    found.push(await findSinceMs(placeOf(text), snapshot));
  expect(found).toEqual([0, 1000, 1000, 2000, 1000, 2000]);
});

test('A cursor ahead of the table, older than the ledger, of another history or of another table is rejected', async () => {
  const snapshot = await openLake();
  for (const [text, message] of [
    ['6', 'version 6 is later than the version that is read, 5'],
    ['1', 'version 1 is no longer known'],
    ['2-ffffffff', 'version 2 has changed'],
    [`2-${theirs}`, 'is a cursor of the table payments, not of events'],
  ] as const)
    await expect(findSinceMs(placeOf(text), snapshot)).rejects.toMatchObject({
      code: 'not_found',
      message: expect.stringContaining(message),
    });
});

test('The next cursor of a table without rows is its version, and 0 without a table', () => {
  const snapshot = { tableDir: '', version: -1, lake: undefined } as Snapshot;
  expect(nextCursor(snapshot)).toBe('0');
  expect(nextCursor({ ...snapshot, version: 3 })).toBe('3');
  expect(placeOf(`3-${noTag}`).tag).toBe(noTag);
});

const kept = (lake: Partial<LakeState>): AvailableVersions => ({ newest: 10, oldest: 3, lake: lake as LakeState });

/** Returns the available ones among some versions. */
const given = (lake: Partial<LakeState>, idApps?: readonly number[]): number[] =>
  [0, 2, 3, 6, 7, 9, 10, 11].filter(
    (version) => findVersionUnavailableReason(version, kept(lake), idApps) === undefined,
  );

test('A version is available if it is kept, has no erased rows, and no erasure is running', () => {
  expect(given({})).toEqual([3, 6, 7, 9, 10]);
  expect(given({ forgetBefore: 7 })).toEqual([7, 9, 10]);
  expect(given({ erasing: [1] })).toEqual([10]);
});

test('Erasures of an app make versions unavailable only to readers of its rows', () => {
  const erased = { erasedBefore: { '1': 7, '2': 9 } };
  expect([given(erased, [1]), given(erased, [1, 2]), given(erased, [3])]).toEqual([
    [7, 9, 10],
    [9, 10],
    [3, 6, 7, 9, 10],
  ]);
  expect([given({ erasing: [1] }, [1, 3]), given({ erasing: [1] }, [3])]).toEqual([[10], [3, 6, 7, 9, 10]]);
  expect(given({ erasing: true }, [3])).toEqual([10]);
});

test('A table that does not exist is available only as version 0', () => {
  const none: AvailableVersions = { newest: -1, oldest: Infinity, lake: undefined };
  expect([findVersionUnavailableReason(0, none), findVersionUnavailableReason(1, none)]).toEqual([
    undefined,
    expect.stringContaining('does not exist yet'),
  ]);
});

/** Writes a commit of this service, or of another engine. */
function writeCommit(tableDir: string, version: number, commitId?: string): void {
  const tributary =
    commitId === undefined
      ? {}
      : { tributary: { cause: 'flush', commitId, availableAtMs: version, totals: emptyTotals } };
  const text = renderCommit([{ commitInfo: { timestamp: 1, operation: 'WRITE', ...tributary } }] as never);
  writeFileSync(path.join(logFolder(tableDir), commitName(version)), text);
}

test('The newest state is followed from commit to commit, and the log is listed again when the last one was removed', async () => {
  const tableDir = testFolder();
  mkdirSync(logFolder(tableDir));
  const search = createStateSearch(tableDir);
  const newest = async (): Promise<string | undefined> => (await search())?.commitId;
  expect(await newest()).toBeUndefined();
  writeCommit(tableDir, 3, 'three');
  expect(await newest()).toBe('three');
  // A list would find it: the log is not listed any more.
  writeCommit(tableDir, 9, 'nine');
  expect(await newest()).toBe('three');
  writeCommit(tableDir, 4, 'four');
  writeCommit(tableDir, 5);
  expect(await newest()).toBe('four');
  rmSync(path.join(logFolder(tableDir), commitName(5)));
  expect(await newest()).toBe('nine');
  // Another history, such as that of a backup.
  writeCommit(tableDir, 9, 'other');
  expect(await newest()).toBe('other');
});
