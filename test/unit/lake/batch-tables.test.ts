import path from 'node:path';
import { writeFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { type BatchTables, type KnownEvents, openBatchTables } from '../../../src/lake/batch/batch-tables.ts';
import { readFailures } from '../../../src/lake/batch/spool-lines.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../src/lake/sql/literals.ts';
import { testFolder } from '../../helpers/folder.ts';
import { linesOf } from '../../helpers/keyed-requests.ts';
import { eventLine, query } from '../../helpers/lake.ts';

const receivedMs = Date.UTC(2026, 2, 1, 12);
/** A retry has the time that the client gave to its events. */
const members = { event_time: receivedMs / 1000 - 60 };
const keyed = (names: string, key = 'k') => linesOf({ key, names: names.split(''), receivedMs, members });
const nothing: KnownEvents = { rule: 'stream', load: () => Promise.resolve() };

/** Opens tables in a separate engine, with a function that spools lines. Texts are written unchanged. */
async function openTables() {
  const folder = testFolder();
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const spool = path.join(folder, 'spool.ndjson');
  const file = path.join(folder, 'rows.parquet');
  const tables = await openBatchTables(duckdb);
  return {
    tables,
    spool,
    file,
    load: (lines: readonly (string | Readonly<Record<string, unknown>>)[]): ReturnType<BatchTables['load']> => {
      writeFileSync(spool, lines.map((line) => `${typeof line === 'string' ? line : JSON.stringify(line)}\n`).join(''));
      return tables.load(spool, lines.length);
    },
    countRows: async (): Promise<number> =>
      Number((await query(`SELECT count(*) AS n FROM read_parquet(${sqlText(file)})`))[0]?.['n']),
  };
}

test('Each line of a spool is a row, a duplicate or a failed event, and rows are written with their time', async () => {
  const { load, spool, file, countRows } = await openTables();
  const bad = eventLine({ age: 'old' });
  const other = keyed('abc');
  const lines = [...keyed('ab'), 'no event', bad, ...other, ...keyed('ab')];
  const loaded = await load(lines);
  const judged = await loaded.classify(nothing);
  expect(loaded.refused).toMatchObject({ code: 'sql' });
  expect(judged).toMatchObject({ rows: 2, repeats: 2, addsKeys: true });
  expect(await readFailures(spool, judged.failedLines)).toEqual([
    { reason: 'bad_json', line: 'no event' },
    { reason: 'bad_value', line: JSON.stringify(bad) },
    ...other.map((line) => ({ reason: 'key_reused', line: JSON.stringify(line) })),
  ]);
  const written = await judged.writeYoung(file, receivedMs + 5, 1000);
  expect(written).toMatchObject({
    numRecords: 2,
    stats: { minValues: { available_at: new Date(receivedMs + 5).toISOString() } },
  });
  expect(await countRows()).toBe(2);
});

test('A batch without new rows writes no young file, and its replay writes an empty one', async () => {
  const { load, file, countRows } = await openTables();
  const judged = await (await load(['no event'])).classify(nothing);
  expect(judged).toMatchObject({
    rows: 0,
    repeats: 0,
    addsKeys: false,
    failedLines: [{ line: 0, reason: 'bad_json' }],
  });
  expect(await judged.writeYoung(file, receivedMs, 9)).toBeUndefined();
  expect((await judged.writeRows(file, receivedMs)).numRecords).toBe(0);
  expect(await countRows()).toBe(0);
});

test('The next batch knows the keys of a batch after they were kept, and until they are dropped', async () => {
  const { tables, load } = await openTables();
  await (await load(keyed('a'))).classify(nothing);
  expect(await (await load(keyed('a'))).classify(nothing)).toMatchObject({ rows: 1, repeats: 0 });
  const kept = await (await load(keyed('a'))).classify(nothing);
  await kept.keepKeys();
  expect(await (await load(keyed('a'))).classify(nothing)).toMatchObject({ rows: 0, repeats: 1 });
  expect(await (await load(keyed('ab'))).classify(nothing)).toMatchObject({ rows: 0, repeats: 0 });
  await tables.keys.forgetBefore(receivedMs + 1);
  expect(await (await load(keyed('ab'))).classify(nothing)).toMatchObject({ rows: 2, repeats: 0 });
});

test('Lookups of a batch do not affect the next batch', async () => {
  const { load, file } = await openTables();
  const line = eventLine();
  const written = await (await (await load([line])).classify(nothing)).writeRows(file, receivedMs);
  const stored = {
    path: 'rows.parquet',
    absolutePath: file,
    sizeBytes: written.sizeBytes,
    numRecords: written.numRecords,
    minValues: written.stats.minValues ?? {},
    maxValues: written.stats.maxValues ?? {},
    sha256: written.sha256,
    young: true,
  };
  const lookUp = (files: readonly (typeof stored)[]): KnownEvents => ({
    rule: 'stream',
    load: (batch) => batch.lookUpEvents(files),
  });
  expect(await (await load([line, line])).classify(lookUp([stored]))).toMatchObject({ rows: 0, repeats: 2 });
  expect(await (await load([line])).classify(nothing)).toMatchObject({ rows: 1, repeats: 0 });
  expect(await (await load([line, line])).classify(lookUp([]))).toMatchObject({ rows: 1, repeats: 1 });
});

test('A lookup of retries of version 0.2 does not drop another request that the batch has twice', async () => {
  const { load, spool, file } = await openTables();
  // As version 0.2 stored a batch of two events: the first one alone under the key, the other under another key.
  const single = (key: string, name: string) =>
    linesOf({ key, names: [name], receivedMs, method: 'customEvent', members });
  const stored = await (await load([...single('k', 'a'), ...single('of b', 'b')])).classify(nothing);
  await stored.writeRows(file, receivedMs);
  await stored.keepKeys();
  const [retry, other] = [keyed('ab'), keyed('abc')];
  const loaded = await load([...retry, ...retry, ...other, ...other]);
  expect(await loaded.classify(nothing)).toMatchObject({ reusesKeys: true });
  const judged = await loaded.classify({
    rule: 'stream',
    async load(batch) {
      await batch.formerTimes();
      await batch.lookUpFormer([], file);
    },
  });
  expect(judged).toMatchObject({ rows: 0, repeats: 4 });
  expect(await readFailures(spool, judged.failedLines)).toEqual(
    [...other, ...other].map((line) => ({ reason: 'key_reused', line: JSON.stringify(line) })),
  );
});

test('A batch is classified again when more events are known', async () => {
  const { tables, load } = await openTables();
  const loaded = await load(keyed('ab'));
  const first = await loaded.classify(nothing);
  await first.keepKeys();
  expect(first.repeats).toBe(0);
  expect(await loaded.classify(nothing)).toMatchObject({ rows: 0, repeats: 2 });
  await tables.keys.clear();
  expect(await loaded.classify(nothing)).toMatchObject({ rows: 2, repeats: 0 });
});

test('A step out of order fails an assertion, and writes nothing', async () => {
  const { load, file } = await openTables();
  const first = await load(keyed('a'));
  const before = await first.classify(nothing);
  const isVoid = 'the batch was classified again: this result is outdated';
  const judged = await first.classify(nothing);
  for (const step of [
    () => before.writeYoung(file, receivedMs, 9),
    () => before.writeRows(file, receivedMs),
    () => before.keepKeys(),
  ])
    await expect(step()).rejects.toThrow(isVoid);
  await judged.keepKeys();
  await expect(judged.keepKeys()).rejects.toThrow('the keys of the batch are known already');

  await load(keyed('b'));
  const gone = 'the tables have a newer batch';
  for (const step of [
    () => first.classify(nothing),
    () => first.writeUnclassified(file),
    () => judged.writeYoung(file, receivedMs, 9),
    () => judged.writeRows(file, receivedMs),
  ])
    await expect(step()).rejects.toThrow(gone);
  await expect(query(`FROM glob(${sqlText(file)})`)).resolves.toEqual([]);
});

test('A spool with an unexpected number of lines is rejected', async () => {
  const { tables, spool, load } = await openTables();
  await load(keyed('ab'));
  for (const events of [1, 3])
    await expect(tables.load(spool, events)).rejects.toThrow('each line of the spool is an event');
});
