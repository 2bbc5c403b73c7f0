import { appendFileSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
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
  type LedgerLine,
} from '../../../src/lake/log/version-ledger.ts';
import { emptyTotals } from '../../../src/lake/log/lake-state.ts';
import { commitName, logFolder, renderCommit } from '../../../src/lake/log/log-files.ts';
import { listUntrimmed, recordVersions } from '../../../src/lake/log/version-points.ts';
import type { AppError } from '../../../src/runtime/errors.ts';
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
  expect(await findInLedger(folder, 0)).toBeUndefined();
  expect((await findEnd(folder)).last).toBeUndefined();
  await appendLines(folder, [line(0, 0), line(3, 1_700_000_000_000, '0123abcd')]);
  await appendLines(folder, [line(7, 1_700_000_000_001, 'ffffffff')]);
  const said = await Promise.all([0, 2, 3, 6, 7, 8].map(async (version) => (await findInLedger(folder, version))?.tag));
  expect(said).toEqual([undefined, undefined, '0123abcd', '0123abcd', 'ffffffff', undefined]);
  expect((await findInLedger(folder, 6))?.availableAtMs).toBe(1_700_000_000_000);
  expect(await findInLedger(folder, 8)).toBeUndefined();
  expect((await findEnd(folder)).last?.version).toBe(7);
  expect(readFileSync(ledgerFile(folder)).length).toBe(3 * 45);
});

test('A line for unknown versions has no point', async () => {
  const folder = testFolder();
  await appendLines(folder, [line(0, 5), { version: 4, point: undefined }, line(9, 6, 'aaaaaaaa')]);
  expect((await findInLedger(folder, 3))?.availableAtMs).toBe(5);
  expect(await findInLedger(folder, 4)).toBeUndefined();
  expect(await findInLedger(folder, 8)).toBeUndefined();
  expect((await findInLedger(folder, 9))?.availableAtMs).toBe(6);
});

test('A truncated ledger keeps its complete lines, and continues after them', async () => {
  const whole = testFolder();
  await appendLines(whole, [line(1, 10), line(2, 20), line(3, 30)]);
  const bytes = readFileSync(ledgerFile(whole));
  await assertProperty(
    asyncProperty(integer({ min: 0, max: bytes.length }), async (size) => {
      const folder = testFolder();
      writeFileSync(ledgerFile(folder), bytes.subarray(0, size));
      const lines = Math.floor(size / 45);
      expect((await findEnd(folder)).last?.version).toBe(lines === 0 ? undefined : lines);
      await appendLines(folder, [line(9, 90)]);
      expect(readFileSync(ledgerFile(folder)).length).toBe((lines + 1) * 45);
      expect((await findInLedger(folder, 9))?.availableAtMs).toBe(90);
    }),
    { numRuns: 30 },
  );
});

test('A ledger with any changed byte returns no wrong time, and lost lines are reported as damage', async () => {
  const folder = testFolder();
  const lines = Array.from({ length: 9 }, (_, n) => line(2 * n + 1, 1000 + n));
  await appendLines(folder, lines);
  const bytes = readFileSync(ledgerFile(folder));
  const all = Array.from({ length: 18 }, (_, version) => version);
  const before = await Promise.all(all.map((version) => findInLedger(folder, version)));
  const wrong: string[] = [];
  const places = Array.from({ length: Math.ceil(bytes.length / 7) }, (_, index) => index * 7);
  for (const at of inTurn(places, 3)) {
    const damaged = Buffer.from(bytes);
    damaged[at] = (damaged[at] ?? 0) ^ 1;
    writeFileSync(ledgerFile(folder), damaged);
    for (const [version, was] of before.entries()) {
      const is = await findInLedger(folder, version).catch((error: unknown) => (error as AppError).code);
      if (is !== 'log_damaged' && JSON.stringify(is) !== JSON.stringify(was)) wrong.push(`${version} at ${at}`);
    }
    const number = Math.floor(at / 45) + 1;
    const { isCutOff } = await findEnd(folder);
    const broken = await findBrokenLines(folder);
    if (number === 9 ? !isCutOff : broken.join() !== String(number)) wrong.push(`line ${number} at ${at}`);
  }
  expect(wrong).toEqual([]);
});

test('A ledger without versions that the log no longer has is reported as damaged, and not overwritten', async () => {
  const table = path.join(testFolder(), 'events');
  mkdirSync(logFolder(table), { recursive: true });
  await appendLines(table, [line(1, 10), line(2, 20)]);
  appendFileSync(ledgerFile(table), Buffer.alloc(200_000));
  const lost = readFileSync(ledgerFile(table));
  expect((await findEnd(table)).last?.version).toBe(2);
  await expect(recordVersions(table, [9])).rejects.toMatchObject({ code: 'log_damaged' });
  expect(readFileSync(ledgerFile(table))).toEqual(lost);
  // A crash has truncated lines that the log still has.
  writeCommit(table, 3, 30);
  await recordVersions(table, [3]);
  expect(await findInLedger(table, 3)).toMatchObject({ availableAtMs: 30 });
});

test('A copy of a ledger may have further lines, and the original stays unchanged', async () => {
  const [from, to] = [testFolder(), testFolder()];
  await appendLines(from, [line(1, 10)]);
  await copyLedger(from, to, { lines: 1, added: [line(2, 20)] });
  expect((await findEnd(to)).last?.version).toBe(2);
  expect((await findEnd(from)).last?.version).toBe(1);
  appendFileSync(ledgerFile(to), 'x');
  truncateSync(ledgerFile(from), 0);
  expect((await findEnd(to)).last?.version).toBe(2);
  const empty = testFolder();
  await copyLedger(from, empty, { lines: 0, added: [] });
  expect((await findEnd(empty)).last).toBeUndefined();
});

test('A copy of a ledger has each version once, also if the log is trimmed meanwhile', async () => {
  const [table, to] = [path.join(testFolder(), 'events'), testFolder()];
  for (let version = 0; version < 6; version += 1) writeCommit(table, version, 10 * version);
  await recordVersions(table, [0, 1]);
  const copy = await listUntrimmed(table, 4);
  await recordVersions(table, [2, 3]);
  await copyLedger(table, to, copy);
  expect(await findBrokenLines(to)).toEqual([]);
  expect((await findEnd(to)).lines).toBe(5);
  const said = await Promise.all([0, 1, 2, 3, 4, 5].map(async (version) => (await findInLedger(to, version))?.tag));
  expect(said).toEqual([
    ...(await Promise.all([0, 1, 2, 3].map(async (version) => (await findInLedger(table, version))?.tag))),
    expect.stringMatching(/^[0-9a-f]{8}$/),
    undefined,
  ]);
});

test('A line that two compactors have appended is intact, and two different lines of a version are damage', async () => {
  const folder = testFolder();
  await appendLines(folder, [line(0, 1), line(3, 2, '0123abcd')]);
  const twice = readFileSync(ledgerFile(folder)).subarray(45);
  appendFileSync(ledgerFile(folder), twice);
  await appendLines(folder, [line(5, 3, 'ffffffff')]);
  expect(await findBrokenLines(folder)).toEqual([]);
  expect((await findInLedger(folder, 4))?.tag).toBe('0123abcd');
  await appendLines(folder, [line(5, 4, 'ffffffff')]);
  await appendLines(folder, [line(6, 4, 'ffffffff')]);
  expect(await findBrokenLines(folder)).toEqual([5]);
});
