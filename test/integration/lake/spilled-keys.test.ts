import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createRandom, type Random } from '../../../src/demo/random.ts';
import { openBatchTables, type LoadedBatch } from '../../../src/lake/batch/batch-tables.ts';
import { keyWindowMs } from '../../../src/datasets/event-id.ts';
import type { DedupeRule } from '../../../src/lake/batch/deduplicate.ts';
import { createSpilledKeys, createKeysSql } from '../../../src/lake/batch/key-table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inTurn, inWholeRun } from '../../helpers/in-turn.ts';
import { linesOf } from '../../helpers/keyed-requests.ts';
import { eventLine } from '../../helpers/lake.ts';

const startMs = Date.UTC(2026, 2, 1, 12);
const hourMs = 3_600_000;

/** Opens tables that keep a few keys and slice the others. Without a number of rows they keep all. */
async function openTables(rows?: number) {
  const folder = testFolder();
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const slices = path.join(folder, 'slices');
  const tables = await openBatchTables(duckdb, undefined, rows === undefined ? undefined : { folder: slices, rows });
  const spool = path.join(folder, 'spool.ndjson');
  return {
    tables,
    load: (lines: readonly Readonly<Record<string, unknown>>[]): Promise<LoadedBatch> => {
      writeFileSync(spool, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
      return tables.load(spool, lines.length);
    },
    files: () => readdirSync(slices).map((name) => path.join(slices, name)),
  };
}
type Opened = Awaited<ReturnType<typeof openTables>>;

/** Classifies a batch by known keys, and keeps its keys, as after its commit. */
async function takeIn(
  { load, tables }: Opened,
  lines: readonly Readonly<Record<string, unknown>>[],
  rule: DedupeRule,
  isCommitted: boolean,
) {
  const judged = await (await load(lines)).classify({ rule, load: () => Promise.resolve() });
  const { rows, repeats, failedLines, addsKeys } = judged;
  if (isCommitted) {
    await judged.keepKeys();
    await tables.keys.slice();
  }
  return { rows, repeats, failedLines, addsKeys };
}

/** Requests under a few keys, which repeat: unchanged, shortened, with a bad event, or as another request. */
function generateLines(random: Random, nowMs: number): Record<string, unknown>[] {
  return Array.from({ length: random.integer(1, 12) }, () => {
    if (random.chance(0.1)) return [eventLine({ received_at: nowMs })];
    const key = `key ${random.integer(1, 120)}`;
    const names = random.chance(0.15) ? ['x', 'y'] : ['a', 'b', 'c'].slice(0, random.integer(1, 3));
    const receivedMs = nowMs + random.integer(-5, 5) * (random.chance(0.2) ? hourMs : 1);
    const lines = linesOf({ key, names: ['a', 'b', 'c'], receivedMs });
    const other = linesOf({ key, names, receivedMs });
    const chosen = random.chance(0.5) ? lines.slice(0, random.integer(1, 3)) : other;
    return chosen.map((line) => (random.chance(0.05) ? { ...line, age: 'old' } : line));
  }).flat();
}

async function passTime(random: Random, all: readonly Opened[], nowMs: number): Promise<number> {
  const leap = random.pick([1000, 60_000, hourMs, 5 * hourMs, -hourMs, -30 * hourMs, 26 * hourMs]);
  const forgetMs = nowMs + leap - keyWindowMs - hourMs;
  const doesForget = random.chance(0.5);
  const doesClear = random.chance(0.02);
  for (const { tables } of all) {
    if (doesForget) await tables.keys.forgetBefore(forgetMs);
    if (doesClear) await tables.keys.clear();
  }
  return nowMs + leap;
}

test.for(inTurn([1, 2], 2))('Slices classify a history of batches as one table does: seed %i', async (seed) => {
  const random = createRandom(seed);
  const all = [await openTables(), await openTables(1), await openTables(20)];
  let nowMs = startMs;
  let repeats = 0;
  let reused = 0;
  for (let turn = 0; turn < 30; turn += 1) {
    const lines = generateLines(random, nowMs);
    const rule = random.chance(0.8) ? 'stream' : 'failed';
    const isCommitted = random.chance(0.9);
    const [expected, ...others] = await Promise.all(all.map((opened) => takeIn(opened, lines, rule, isCommitted)));
    for (const verdict of others) expect(verdict).toEqual(expected);
    repeats += expected?.repeats ?? 0;
    reused += expected?.failedLines.filter(({ reason }) => reason === 'key_reused').length ?? 0;
    nowMs = await passTime(random, all, nowMs);
  }
  expect(repeats).toBeGreaterThan(10);
  expect(reused).toBeGreaterThan(10);
});

test('Keys of slices are known until they expire, and then their files are removed', async () => {
  const opened = await openTables(3);
  const requests = Array.from({ length: 20 }, (_, index) => ({
    key: `key ${index}`,
    names: ['a', 'b'],
    receivedMs: startMs + index * 1000,
  }));
  for (const request of requests) await takeIn(opened, linesOf(request), 'stream', true);
  expect(opened.files()).toHaveLength(10);
  const again = requests.flatMap((request) => linesOf({ ...request, receivedMs: startMs + hourMs }));
  expect(await takeIn(opened, again, 'stream', false)).toMatchObject({ rows: 0, repeats: 40 });
  await opened.tables.keys.forgetBefore(startMs + 11_000);
  expect(opened.files()).toHaveLength(5);
  expect(await takeIn(opened, again, 'stream', false)).toMatchObject({ rows: 22, repeats: 18 });
  await opened.tables.keys.clear();
  expect(opened.files()).toHaveLength(0);
  expect(await takeIn(opened, again, 'stream', false)).toMatchObject({ rows: 40, repeats: 0 });
});

test('A missing slice is an error for a batch with its keys', async () => {
  const opened = await openTables(1);
  const request = { key: 'k', names: ['a'], receivedMs: startMs };
  await takeIn(opened, linesOf(request), 'stream', true);
  for (const file of opened.files()) rmSync(file);
  expect(await takeIn(opened, linesOf({ ...request, key: 'other' }), 'stream', false)).toMatchObject({ rows: 1 });
  await expect(takeIn(opened, linesOf(request), 'stream', false)).rejects.toMatchObject({ code: 'sql' });
});

test('All slices are known, also more than the set of hashes has ids for, and later ones', async ({ skip }) => {
  inWholeRun(skip);
  const folder = testFolder();
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  for (const name of ['recent_keys', 'sliced_keys']) await duckdb.run(createKeysSql(name));
  await duckdb.run(
    'CREATE TEMP TABLE asked AS SELECT (random() * 1e15)::DECIMAL(38,0) AS key, range AS r FROM range(300)',
  );
  const slices = createSpilledKeys(duckdb, folder);
  const add = async (from: number, to: number) => {
    for (let row = from; row < to; row += 1) {
      await duckdb.run(`INSERT INTO recent_keys SELECT key, 1, 0, ${startMs + row} FROM asked WHERE r = ${row}`);
      await slices.add();
    }
  };
  const countFound = async () => {
    await slices.lookUp();
    const [row] = await duckdb.rows('SELECT count(DISTINCT key) AS n FROM sliced_keys');
    return Number(row?.['n']);
  };
  await add(0, 260);
  expect(await countFound()).toBe(260);
  await slices.forgetBefore(startMs + 100);
  expect(await countFound()).toBe(160);
  await add(260, 300);
  expect(await countFound()).toBe(200);
  expect(slices.size().events).toBe(200);
});

test('Two compactors that write slices into one folder find their own keys only', async () => {
  const folder = testFolder();
  const open = async () => {
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    onTestFinished(() => duckdb.close());
    for (const name of ['recent_keys', 'sliced_keys']) await duckdb.run(createKeysSql(name));
    await duckdb.run(
      'CREATE TEMP TABLE asked AS SELECT (random() * 1e15)::DECIMAL(38,0) AS key, range AS r FROM range(3)',
    );
    await duckdb.run(`INSERT INTO recent_keys SELECT key, 1, 0, ${startMs} FROM asked`);
    return { duckdb, slices: createSpilledKeys(duckdb, folder) };
  };
  const both = [await open(), await open()];
  for (const { slices } of both) await slices.add();
  for (const { duckdb, slices } of both) {
    await slices.lookUp();
    expect(await duckdb.rows('SELECT count(DISTINCT key) AS n FROM sliced_keys')).toEqual([{ n: 3n }]);
  }
});
