import { appendFileSync, mkdirSync, readFileSync, renameSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { assert as assertProperty, asyncProperty, integer } from 'fast-check';
import { expect, test } from 'vitest';
import {
  appendLines,
  copyLedger,
  findBrokenLines,
  findEnd,
  findInLedger,
  ledgerFile,
  ledgerName,
  type LedgerLine,
} from '../../../src/lake/log/version-ledger.ts';
import { emptyTotals } from '../../../src/lake/log/lake-state.ts';
import { commitName, logFolder, renderCommit, tableStore } from '../../../src/lake/log/log-files.ts';
import { listUntrimmed, recordVersions } from '../../../src/lake/log/version-points.ts';
import type { AppError } from '../../../src/runtime/errors.ts';
import { openFakeStore, startFakeS3 } from '../../helpers/fake-s3.ts';
import { inTurn } from '../../helpers/in-turn.ts';
import { testFolder } from '../../helpers/folder.ts';

const line = (version: number, availableAtMs: number, tag?: string): LedgerLine => ({
  version,
  point: { version, availableAtMs, tag },
});

/** Writes a commit with an `available_at`. */
function writeCommit(table: string, version: number, availableAtMs: number): void {
  mkdirSync(logFolder(table), { recursive: true });
  const commitId = `commit ${version}`;
  const tributary = { commitId, cause: 'flush', totals: emptyTotals, availableAtMs, availableBy: commitId } as const;
  const provenance = { timestamp: 1, operation: 'FLUSH', operationParameters: {}, engineInfo: 'x', txnId: commitId };
  const text = renderCommit([{ commitInfo: { ...provenance, tributary } }]);
  writeFileSync(path.join(logFolder(table), commitName(version)), text);
}

test('A ledger has the time of each version from the line at or before it, and none after its last line', async () => {
  const folder = testFolder();
  expect(await findInLedger(tableStore(folder), 0)).toBeUndefined();
  expect((await findEnd(tableStore(folder))).last).toBeUndefined();
  await appendLines(tableStore(folder), [line(0, 0), line(3, 1_700_000_000_000, '0123abcd')]);
  await appendLines(tableStore(folder), [line(7, 1_700_000_000_001, 'ffffffff')]);
  const said = await Promise.all(
    [0, 2, 3, 6, 7, 8].map(async (version) => (await findInLedger(tableStore(folder), version))?.tag),
  );
  expect(said).toEqual([undefined, undefined, '0123abcd', '0123abcd', 'ffffffff', undefined]);
  expect((await findInLedger(tableStore(folder), 6))?.availableAtMs).toBe(1_700_000_000_000);
  expect(await findInLedger(tableStore(folder), 8)).toBeUndefined();
  expect((await findEnd(tableStore(folder))).last?.version).toBe(7);
  expect(readFileSync(ledgerFile(folder)).length).toBe(3 * 45);
});

test('A line for unknown versions has no point', async () => {
  const folder = testFolder();
  await appendLines(tableStore(folder), [line(0, 5), { version: 4, point: undefined }, line(9, 6, 'aaaaaaaa')]);
  expect((await findInLedger(tableStore(folder), 3))?.availableAtMs).toBe(5);
  expect(await findInLedger(tableStore(folder), 4)).toBeUndefined();
  expect(await findInLedger(tableStore(folder), 8)).toBeUndefined();
  expect((await findInLedger(tableStore(folder), 9))?.availableAtMs).toBe(6);
});

test('A truncated ledger keeps its complete lines, and continues after them', async () => {
  const whole = testFolder();
  await appendLines(tableStore(whole), [line(1, 10), line(2, 20), line(3, 30)]);
  const bytes = readFileSync(ledgerFile(whole));
  await assertProperty(
    asyncProperty(integer({ min: 0, max: bytes.length }), async (size) => {
      const folder = testFolder();
      writeFileSync(ledgerFile(folder), bytes.subarray(0, size));
      const lines = Math.floor(size / 45);
      expect((await findEnd(tableStore(folder))).last?.version).toBe(lines === 0 ? undefined : lines);
      await appendLines(tableStore(folder), [line(9, 90)]);
      expect(readFileSync(ledgerFile(folder)).length).toBe((lines + 1) * 45);
      expect((await findInLedger(tableStore(folder), 9))?.availableAtMs).toBe(90);
    }),
    { numRuns: 30 },
  );
});

test('A ledger with any changed byte returns no wrong time, and lost lines are reported as damage', async () => {
  const folder = testFolder();
  const lines = Array.from({ length: 9 }, (_, n) => line(2 * n + 1, 1000 + n));
  await appendLines(tableStore(folder), lines);
  const bytes = readFileSync(ledgerFile(folder));
  const all = Array.from({ length: 18 }, (_, version) => version);
  const before = await Promise.all(all.map((version) => findInLedger(tableStore(folder), version)));
  const wrong: string[] = [];
  const places = Array.from({ length: Math.ceil(bytes.length / 7) }, (_, index) => index * 7);
  for (const at of inTurn(places, 3)) {
    const damaged = Buffer.from(bytes);
    damaged[at] = (damaged[at] ?? 0) ^ 1;
    writeFileSync(ledgerFile(folder), damaged);
    for (const [version, was] of before.entries()) {
      const is = await findInLedger(tableStore(folder), version).catch((error: unknown) => (error as AppError).code);
      if (is !== 'log_damaged' && JSON.stringify(is) !== JSON.stringify(was)) wrong.push(`${version} at ${at}`);
    }
    const number = Math.floor(at / 45) + 1;
    const { isCutOff } = await findEnd(tableStore(folder));
    const broken = await findBrokenLines(tableStore(folder));
    if (number === 9 ? !isCutOff : broken.join() !== String(number)) wrong.push(`line ${number} at ${at}`);
  }
  expect(wrong).toEqual([]);
});

test('A ledger without versions that the log no longer has is reported as damaged, and not overwritten', async () => {
  const table = path.join(testFolder(), 'events');
  mkdirSync(logFolder(table), { recursive: true });
  await appendLines(tableStore(table), [line(1, 10), line(2, 20)]);
  appendFileSync(ledgerFile(table), Buffer.alloc(200_000));
  const lost = readFileSync(ledgerFile(table));
  expect((await findEnd(tableStore(table))).last?.version).toBe(2);
  await expect(recordVersions(table, [9])).rejects.toMatchObject({ code: 'log_damaged' });
  expect(readFileSync(ledgerFile(table))).toEqual(lost);
  // A crash has truncated lines that the log still has.
  writeCommit(table, 3, 30);
  await recordVersions(table, [3]);
  expect(await findInLedger(tableStore(table), 3)).toMatchObject({ availableAtMs: 30 });
});

test('A ledger that is a symbolic link is reported as damaged, and not overwritten', async () => {
  const [folder, elsewhere] = [testFolder(), path.join(testFolder(), 'ledger')];
  await appendLines(tableStore(folder), [line(1, 10), line(2, 20)]);
  renameSync(ledgerFile(folder), elsewhere);
  symlinkSync(elsewhere, ledgerFile(folder));
  await expect(appendLines(tableStore(folder), [line(3, 30)])).rejects.toMatchObject({ code: 'log_damaged' });
  expect(readFileSync(elsewhere).length).toBe(2 * 45);
});

test('A copy of a ledger may have further lines, and the original stays unchanged', async () => {
  const [from, to] = [testFolder(), testFolder()];
  await appendLines(tableStore(from), [line(1, 10)]);
  await copyLedger(tableStore(from), to, { key: ledgerName, lines: 1, added: [line(2, 20)] });
  expect((await findEnd(tableStore(to))).last?.version).toBe(2);
  expect((await findEnd(tableStore(from))).last?.version).toBe(1);
  appendFileSync(ledgerFile(to), 'x');
  truncateSync(ledgerFile(from), 0);
  expect((await findEnd(tableStore(to))).last?.version).toBe(2);
  const empty = testFolder();
  await copyLedger(tableStore(from), empty, { key: ledgerName, lines: 0, added: [] });
  expect((await findEnd(tableStore(empty))).last).toBeUndefined();
});

test('A copy of a ledger has each version once, also if the log is trimmed meanwhile', async () => {
  const [table, to] = [path.join(testFolder(), 'events'), testFolder()];
  for (let version = 0; version < 6; version += 1) writeCommit(table, version, 10 * version);
  await recordVersions(table, [0, 1]);
  const copy = await listUntrimmed(table, 4);
  await recordVersions(table, [2, 3]);
  await copyLedger(tableStore(table), to, copy);
  expect(await findBrokenLines(tableStore(to))).toEqual([]);
  expect((await findEnd(tableStore(to))).lines).toBe(5);
  const said = await Promise.all(
    [0, 1, 2, 3, 4, 5].map(async (version) => (await findInLedger(tableStore(to), version))?.tag),
  );
  expect(said).toEqual([
    ...(await Promise.all([0, 1, 2, 3].map(async (version) => (await findInLedger(tableStore(table), version))?.tag))),
    expect.stringMatching(/^[0-9a-f]{8}$/),
    undefined,
  ]);
});

test('A line that two compactors have appended is intact, and two different lines of a version are damage', async () => {
  const folder = testFolder();
  await appendLines(tableStore(folder), [line(0, 1), line(3, 2, '0123abcd')]);
  const twice = readFileSync(ledgerFile(folder)).subarray(45);
  appendFileSync(ledgerFile(folder), twice);
  await appendLines(tableStore(folder), [line(5, 3, 'ffffffff')]);
  expect(await findBrokenLines(tableStore(folder))).toEqual([]);
  expect((await findInLedger(tableStore(folder), 4))?.tag).toBe('0123abcd');
  await appendLines(tableStore(folder), [line(5, 4, 'ffffffff')]);
  await appendLines(tableStore(folder), [line(6, 4, 'ffffffff')]);
  expect(await findBrokenLines(tableStore(folder))).toEqual([5]);
});

/** Lines of an object that is full. */
const fullLines = 16_384;

async function openBucketLedger() {
  const server = await startFakeS3();
  const store = await openFakeStore(server);
  await appendLines(
    store,
    Array.from({ length: fullLines }, (_, n) => line(n, 1000 + n)),
  );
  await appendLines(store, [line(fullLines + 6, 90_000, 'aaaaaaaa')]);
  return { server, store };
}

test('A ledger in a bucket is sealed into objects, and an append rewrites only the last one', async () => {
  const { server, store } = await openBucketLedger();
  server.asked.length = 0;
  await appendLines(store, [line(fullLines + 9, 90_001, 'bbbbbbbb')]);
  expect(server.asked.filter((asked) => asked.startsWith('PUT'))).toEqual(['PUT a/_versions/000000016384.csv']);
  expect([...server.objects].map(([key, { bytes }]) => [key, bytes.length / 45])).toEqual([
    ['a/_versions.csv', fullLines],
    ['a/_versions/000000016384.csv', 3],
  ]);
  const timeOf = async (version: number) => (await findInLedger(store, version))?.availableAtMs;
  const near = [0, 1, 5].map((more) => timeOf(fullLines + more));
  expect(await Promise.all([timeOf(7), timeOf(fullLines - 1), ...near])).toEqual([
    1007,
    ...Array.from({ length: 4 }, () => 1000 + fullLines - 1),
  ]);
  expect(await Promise.all([6, 8, 9, 10].map((more) => timeOf(fullLines + more)))).toEqual([
    90_000,
    90_000,
    90_001,
    undefined,
  ]);
  expect(await findBrokenLines(store)).toEqual([]);
});

test('Of two that append at the same end of a ledger in a bucket, one does', async () => {
  const { store } = await openBucketLedger();
  const end = await findEnd(store);
  const added = [1, 2].map((n) => appendLines(store, [line(fullLines + 6 + n, 90_000 + n)], end));
  expect((await Promise.all(added)).toSorted((a, b) => Number(a) - Number(b))).toEqual([false, true]);
  const last = await findEnd(store);
  const many = Array.from({ length: fullLines }, (_, n) => line(fullLines + 20 + n, 100_000 + n));
  expect(await appendLines(store, many, last)).toBe(true);
  const full = await findEnd(store);
  const later = [1, 2].map((n) => appendLines(store, [line(3 * fullLines + n, 200_000)], full));
  expect((await Promise.all(later)).toSorted((a, b) => Number(a) - Number(b))).toEqual([false, true]);
  expect(await findBrokenLines(store)).toEqual([]);
});

test('An object of a ledger in a bucket that lost lines, or is missing, is reported as damaged', async () => {
  const { server, store } = await openBucketLedger();
  const first = server.objects.get('a/_versions.csv');
  if (first === undefined) throw new Error('it is missing');
  server.objects.set('a/_versions.csv', { ...first, etag: '"cut"', bytes: first.bytes.subarray(0, 45 * 100 + 7) });
  await expect(findInLedger(store, 5000)).rejects.toMatchObject({ code: 'log_damaged' });
  expect((await findInLedger(store, 99))?.availableAtMs).toBe(1099);
  expect(await findBrokenLines(store)).toEqual([101, 102]);
  server.objects.delete('a/_versions.csv');
  expect(await findBrokenLines(store)).toEqual([1]);
});

test('A ledger in a bucket is copied to one file, without later lines', async () => {
  const [{ store }, folder] = [await openBucketLedger(), testFolder()];
  const { key, lines } = await findEnd(store);
  await appendLines(store, [line(fullLines + 7, 90_001)]);
  await copyLedger(store, folder, { key, lines, added: [line(fullLines + 8, 90_002)] });
  expect(readFileSync(ledgerFile(folder)).length).toBe((fullLines + 3) * 45);
  expect(await findBrokenLines(tableStore(folder))).toEqual([]);
  const times = [fullLines - 1, fullLines + 7, fullLines + 8].map((version) =>
    findInLedger(tableStore(folder), version),
  );
  expect((await Promise.all(times)).map((point) => point?.availableAtMs)).toEqual([
    1000 + fullLines - 1,
    90_000,
    90_002,
  ]);
});
