import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import * as fc from 'fast-check';
import { expect, onTestFinished, test } from 'vitest';
import { openEnrichment, type Enrichment } from '../../../src/enrichment/enrichment.ts';
import { openBatchTables, type JudgedBatch, type KnownEvents } from '../../../src/lake/batch/batch-tables.ts';
import type { WrittenFile } from '../../../src/lake/files/data-file.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlList, sqlText } from '../../../src/lake/sql/literals.ts';
import { testFolder } from '../../helpers/folder.ts';
import { linesOf } from '../../helpers/keyed-requests.ts';
import { eventLine, query } from '../../helpers/lake.ts';

const nothing: KnownEvents = { rule: 'stream', load: () => Promise.resolve() };
const availableAtMs = Date.UTC(2026, 2, 1, 12);
type Line = string | Readonly<Record<string, unknown>>;

/** An engine that takes the same lines in by both ways: straight to a file, and by the tables. */
async function openBothWays(enrichment?: Enrichment, memoryMb = 256) {
  const folder = testFolder();
  const [spool, plainFile, judgedFile] = ['spool.ndjson', 'plain.parquet', 'judged.parquet'].map((name) =>
    path.join(folder, name),
  ) as [string, string, string];
  const duckdb = await openDuckdb({ memoryMb, threads: 2 });
  onTestFinished(() => duckdb.close());
  const tables = await openBatchTables(duckdb, enrichment);
  return {
    plainFile,
    judgedFile,
    writeLines: (lines: readonly Line[]): void =>
      writeFileSync(spool, lines.map((line) => `${typeof line === 'string' ? line : JSON.stringify(line)}\n`).join('')),
    writePlain: (events: number) => tables.writePlain({ file: spool, events }, plainFile, availableAtMs),
    judge: async (events: number): Promise<{ judged: JudgedBatch; written: WrittenFile | undefined }> => {
      const judged = await (await tables.load(spool, events)).judge(nothing);
      return { judged, written: await judged.writeYoung(judgedFile, availableAtMs, 500 * events) };
    },
  };
}

/** Rows that only one of two files has, each as often as it has it more; a column that is left out is NULL. */
async function differingRows(one: string, other: string): Promise<unknown[]> {
  const both = `read_parquet(${sqlList([one, other])}, union_by_name = true, filename = true)`;
  const rows = (file: string): string =>
    `SELECT * EXCLUDE (filename) REPLACE (custom_event_params::VARCHAR AS custom_event_params) FROM ${both} WHERE filename = ${sqlText(file)}`;
  return query(`(${rows(one)} EXCEPT ALL ${rows(other)}) UNION ALL (${rows(other)} EXCEPT ALL ${rows(one)})`);
}

const text = fc.oneof(
  fc.string({ unit: 'grapheme' }),
  fc.constantFrom('', ' ', '1.5', 'null', '\u0000', '\ufeffx', '"'),
);
/** Values that ingest writes into a line. */
const plainMembers = fc.record(
  {
    custom_user_id: text,
    user_agent: text,
    custom_event_params: fc.dictionary(text, text, { maxKeys: 4 }),
    age: fc.integer({ min: -32_768, max: 32_767 }),
    id_gender: fc.integer({ min: 0, max: 2 }),
    sezam_user_id: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String),
    hwid: fc.bigInt({ min: 0n, max: 10n ** 20n - 1n }).map(String),
    event_time: fc.integer({ min: 0, max: 253_402_300_799 }),
  },
  { requiredKeys: [] },
);
/** Values that it does not: each is judged the same by both ways, good or bad. */
const oddMembers = fc
  .tuple(
    fc.constantFrom('age', 'id_app', 'event_time', 'received_at', 'sezam_user_id', 'hwid', 'total', 'event_id', 'kind'),
    fc.oneof(
      fc.constantFrom('1', ' 1', '1.0', '1e2', '0x1', '1_0', '', '-1', '9'.repeat(19), '9'.repeat(40), '1.23456'),
      fc.constantFrom<unknown>(1.5, 1e300, -1, 32_768, true, null, [], {}, 253_402_300_800, 2 ** 53),
      fc.constantFrom('payment', 'revenue', 'registration', '{00000000-0000-7000-8000-000000000000}'),
    ),
  )
  .map(([name, value]) => ({ [name]: value }));
const oddLines: fc.Arbitrary<Line> = fc.oneof(
  oddMembers.map((members) => eventLine(members)),
  fc.constantFrom('', '{', '[]', '1', '{"age":1,"age":2}', '{"event_id":"\\ud800"}'),
  fc
    .constantFrom('1.0', '5e0', '1E400', '00')
    .map((digits) => JSON.stringify(eventLine({ age: 0 })).replace('"age":0', `"age":${digits}`)),
  fc
    .constantFrom({ unknown_column: 1 }, { custom_event_params: { a: 1 } }, { custom_event_params: [1] }, { idfa: 'x' })
    .map((members) => eventLine(members)),
  fc
    .constantFrom('ab', 'aa')
    .map((names) => linesOf({ key: 'k', names: names.split(''), receivedMs: availableAtMs })[0] ?? {}),
);
const plainLine = plainMembers.map((members): Line => eventLine({ ...members }));

test('Whatever the lines, those that go straight to the file are the rows that the tables would have written', async () => {
  const { plainFile, judgedFile, writeLines, writePlain, judge } = await openBothWays();
  let [straight, judgedOnly] = [0, 0];
  await fc.assert(
    fc.asyncProperty(
      fc.array(plainLine, { minLength: 1, maxLength: 12 }),
      fc.oneof(fc.constant<Line[]>([]), fc.array(oddLines, { minLength: 1, maxLength: 2 })),
      async (good, odd) => {
        const lines = [...good, ...odd];
        writeLines(lines);
        const plain = await writePlain(lines.length);
        const { judged, written } = await judge(lines.length);
        if (plain === undefined) judgedOnly += 1;
        else straight += 1;
        const taken = { isThere: existsSync(plainFile), stats: plain?.stats, ...judged };
        const differing = plain === undefined ? [] : await differingRows(plainFile, judgedFile);
        const all = {
          rows: lines.length,
          repeats: 0,
          others: [],
          failedLines: [],
          addsKeys: false,
          stats: written?.stats,
        };
        expect(taken).toMatchObject({ isThere: plain !== undefined, ...(plain === undefined ? {} : all) });
        expect(differing).toEqual([]);
      },
    ),
    { numRuns: 24, endOnFailure: true },
  );
  expect(Math.min(straight, judgedOnly)).toBeGreaterThan(1);
});

test('A batch with rows of another table, or under a key, is left to the tables', async () => {
  const { writeLines, writePlain, plainFile } = await openBothWays();
  const keyedLine = linesOf({ key: 'k', names: ['a'], receivedMs: availableAtMs })[0] ?? {};
  const payment = eventLine({ kind: 'revenue', total: '1.5', currency: 'EUR', id_transaction: 't' });
  for (const line of [keyedLine, payment]) {
    writeLines([eventLine(), line]);
    expect(await writePlain(2)).toBeUndefined();
    expect(existsSync(plainFile)).toBe(false);
  }
});

const agent = 'Mozilla/5.0 (X11; Linux x86_64; rv:102.0) Gecko/20100101 Firefox/102.0';

test('Lines with some of the texts that look-ups are made of go straight to the file, with what was found', async () => {
  const enrichment = await openEnrichment();
  for (const members of [{}, { ipv4: '8.8.8.8' }, { ipv6: '2a00:1450::1' }, { user_agent: agent }]) {
    const { writeLines, writePlain, judge, plainFile, judgedFile } = await openBothWays(enrichment);
    writeLines([eventLine({ ...members, custom_event_params: { a: '1' } }), eventLine()]);
    const written = await writePlain(2);
    await judge(2);
    expect(written).toMatchObject({ numRecords: 2 });
    expect(await differingRows(plainFile, judgedFile)).toEqual([]);
  }
  expect(enrichment.problems()).toEqual([]);
});

test('A column that no batch had before is judged once, and goes straight to the file from then on', async () => {
  const { writeLines, writePlain, judge } = await openBothWays();
  writeLines([eventLine()]);
  expect(await writePlain(1)).toMatchObject({ numRecords: 1 });
  writeLines([eventLine({ age: 7 })]);
  expect(await writePlain(1)).toBeUndefined();
  await judge(1);
  expect(await writePlain(1)).toMatchObject({ numRecords: 1 });
});

test('A spool with fewer events than were counted is left to the tables', async () => {
  const { writeLines, writePlain, plainFile } = await openBothWays();
  writeLines([eventLine(), '']);
  expect(await writePlain(2)).toBeUndefined();
  expect(existsSync(plainFile)).toBe(false);
});

test('A batch that the engine has no memory for is left to the tables, whose rows stay in the order of their lines', async () => {
  const enrichment = await openEnrichment();
  const { writeLines, writePlain, judge, plainFile } = await openBothWays(enrichment, 128);
  const params = Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`key ${index}`, 'x']));
  const wide = Array.from({ length: 1600 }, () => eventLine({ ipv4: '8.8.8.8', custom_event_params: params }));
  writeLines(wide);
  expect(await writePlain(wide.length)).toBeUndefined();
  expect(existsSync(plainFile)).toBe(false);
  expect(enrichment.problems()).toEqual([]);
  writeLines([eventLine(), eventLine({ age: 'old' })]);
  expect(await judge(2)).toMatchObject({ judged: { failedLines: [{ line: 1 }] }, written: { numRecords: 1 } });
});
