import { existsSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import * as fc from 'fast-check';
import { expect, onTestFinished, test } from 'vitest';
import { openEnrichment, type Enrichment } from '../../../src/enrichment/enrichment.ts';
import { openBatchTables, type ClassifiedBatch, type KnownEvents } from '../../../src/lake/batch/batch-tables.ts';
import type { WrittenFile } from '../../../src/lake/files/data-file.ts';
import { openDuckdb, type SqlRow } from '../../../src/lake/sql/duckdb.ts';
import { sqlList, sqlText } from '../../../src/lake/sql/literals.ts';
import { testFolder } from '../../helpers/folder.ts';
import { isWhole } from '../../helpers/in-turn.ts';
import { linesOf } from '../../helpers/keyed-requests.ts';
import { eventLine, query } from '../../helpers/lake.ts';

const nothing: KnownEvents = { rule: 'stream', load: () => Promise.resolve() };
const availableAtMs = Date.UTC(2026, 2, 1, 12);
type Line = string | Readonly<Record<string, unknown>>;

interface PlainlyTaken extends Pick<ClassifiedBatch, 'rows' | 'repeats' | 'addsKeys'> {
  readonly written: WrittenFile;
  readonly keys: readonly SqlRow[];
}

/** Opens an engine that writes the same lines by the direct and by the staged path. */
async function openBothWays(enrichment?: Enrichment, memoryMb = 256) {
  const folder = testFolder();
  const [spool, plainFile, judgedFile] = ['spool.ndjson', 'plain.parquet', 'judged.parquet'].map((name) =>
    path.join(folder, name),
  ) as [string, string, string];
  const duckdb = await openDuckdb({ memoryMb, threads: 2 });
  onTestFinished(() => duckdb.close());
  const tables = await openBatchTables(duckdb, enrichment);
  const readKeys = () => duckdb.rows('SELECT key::VARCHAR AS key, print, place, ms FROM batch_keys ORDER BY ALL');
  return {
    plainFile,
    judgedFile,
    writeLines: (lines: readonly Line[]): void =>
      writeFileSync(spool, lines.map((line) => `${typeof line === 'string' ? line : JSON.stringify(line)}\n`).join('')),
    writePlain: (events: number) => tables.writePlain({ file: spool, events }, plainFile, availableAtMs),
    /** Writes as a flush does: directly, then with classified keys; undefined for the staged path. */
    takePlain: async (events: number): Promise<PlainlyTaken | undefined> => {
      const lines = { file: spool, events };
      const keyless = await tables.writePlain(lines, plainFile, availableAtMs);
      if (keyless !== undefined) return { written: keyless, rows: events, repeats: 0, addsKeys: false, keys: [] };
      const judged = await (await tables.loadKeyed(lines))?.classify(nothing);
      const written = await judged?.writeYoung(plainFile, availableAtMs, 500 * events);
      return judged === undefined || written === undefined
        ? undefined
        : { written, rows: judged.rows, repeats: judged.repeats, addsKeys: judged.addsKeys, keys: await readKeys() };
    },
    readKeys,
    judge: async (events: number): Promise<{ judged: ClassifiedBatch; written: WrittenFile | undefined }> => {
      const judged = await (await tables.load(spool, events)).classify(nothing);
      return { judged, written: await judged.writeYoung(judgedFile, availableAtMs, 500 * events) };
    },
  };
}

/** Returns the rows in which two files differ. An omitted column is NULL. */
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
/** Values that ingest writes. */
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
/** Values that it does not write. Both paths must classify them equally. */
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

const mostly = <T>(usual: T, other: T) =>
  fc.oneof({ weight: 15, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: fc.constant(other) });
/** Requests under few keys, which repeat, mostly unchanged, at the same time and later. */
const keyedLines = fc
  .record({
    key: fc.integer({ min: 0, max: 30 }).map(String),
    names: mostly(['a', 'b'], ['b']),
    receivedMs: fc.integer({ min: 0, max: 2 }).map((days) => availableAtMs + days * 16 * 3_600_000),
    members: mostly<Record<string, string>>({}, { age: 'old' }),
  })
  .map((request): Line[] => linesOf(request));

test('The direct path writes the same rows as the staged path, for any lines', async () => {
  const { plainFile, judgedFile, writeLines, takePlain, judge, readKeys } = await openBothWays();
  const ways = { straight: 0, keyed: 0, repeats: 0, judged: 0 };
  await fc.assert(
    fc.asyncProperty(
      fc.array(plainLine, { minLength: 1, maxLength: 12 }),
      fc.oneof(fc.constant<Line[]>([]), fc.array(oddLines, { minLength: 1, maxLength: 2 })),
      fc.oneof(
        fc.constant<Line[]>([]),
        fc.array(keyedLines, { minLength: 1, maxLength: 3 }).map((requests) => requests.flat()),
      ),
      async (good, odd, keyed) => {
        const lines = [...keyed, ...good, ...odd];
        rmSync(plainFile, { force: true });
        writeLines(lines);
        const plain = await takePlain(lines.length);
        const isThere = existsSync(plainFile);
        const { judged, written } = await judge(lines.length);
        const { rows, repeats, addsKeys, others, failedLines } = judged;
        const byTables = {
          rows,
          repeats,
          addsKeys,
          keys: await readKeys(),
          stats: written?.stats,
          others,
          failedLines,
        };
        const straight = { ...plain, stats: plain?.written.stats, others: [], failedLines: [] };
        const differing = plain === undefined ? [] : await differingRows(plainFile, judgedFile);
        if (plain === undefined) ways.judged += 1;
        else ways.straight += 1;
        if (plain?.addsKeys === true) ways.keyed += 1;
        ways.repeats += plain?.repeats ?? 0;
        expect({ isThere, ...(plain === undefined ? byTables : straight) }).toMatchObject({
          isThere: plain !== undefined,
          ...byTables,
        });
        expect(differing).toEqual([]);
        await judged.keepKeys();
      },
    ),
    // Few runs, with a seed that takes each path more than once.
    isWhole ? { numRuns: 100, endOnFailure: true } : { numRuns: 10, endOnFailure: true, seed: 13 },
  );
  expect(Math.min(...Object.values(ways)), JSON.stringify(ways)).toBeGreaterThan(1);
});

test('A batch with rows of another table takes the staged path, and one with keys the direct path after classification', async () => {
  const { writeLines, writePlain, takePlain, plainFile } = await openBothWays();
  const keyedLine = linesOf({ key: 'k', names: ['a'], receivedMs: availableAtMs })[0] ?? {};
  const payment = eventLine({ kind: 'revenue', total: '1.5', currency: 'EUR', id_transaction: 't' });
  for (const line of [keyedLine, payment]) {
    writeLines([eventLine(), line]);
    expect(await writePlain(2)).toBeUndefined();
    expect(existsSync(plainFile)).toBe(false);
  }
  expect(await takePlain(2)).toBeUndefined();
  writeLines([eventLine(), keyedLine]);
  expect(await takePlain(2)).toMatchObject({ rows: 2, repeats: 0, addsKeys: true });
});

test('Consecutive batches with keys take the direct path, also after one without keys', async () => {
  const { writeLines, writePlain, takePlain } = await openBothWays();
  const keyedLine = linesOf({ key: 'k', names: ['a'], receivedMs: availableAtMs })[0] ?? {};
  writeLines([eventLine(), keyedLine, keyedLine]);
  expect(await takePlain(3)).toBeUndefined();
  writeLines([eventLine(), keyedLine, { ...keyedLine, received_at: availableAtMs + 1 }]);
  expect(await takePlain(3)).toMatchObject({ rows: 2, repeats: 1, written: { numRecords: 2 } });
  writeLines([eventLine()]);
  expect(await writePlain(1)).toBeUndefined();
  expect(await takePlain(1)).toMatchObject({ rows: 1, repeats: 0, addsKeys: false });
  expect(await writePlain(1)).toMatchObject({ numRecords: 1 });
});

const requestUnderKey = (names: string[]) => linesOf({ key: 'k', names, receivedMs: availableAtMs });

test('A reused key needs the staged path, and so does a batch of duplicates only', async () => {
  const { writeLines, takePlain, judge, plainFile } = await openBothWays();
  writeLines(requestUnderKey(['a']));
  await (await judge(1)).judged.keepKeys();
  for (const lines of [requestUnderKey(['a']), [eventLine(), ...requestUnderKey(['other', 'request'])]]) {
    writeLines(lines);
    expect(await takePlain(lines.length)).toBeUndefined();
    expect(existsSync(plainFile)).toBe(false);
  }
  expect((await judge(3)).judged).toMatchObject({ rows: 1, failedLines: [{ line: 1 }, { line: 2 }] });
});

const agent = 'Mozilla/5.0 (X11; Linux x86_64; rv:102.0) Gecko/20100101 Firefox/102.0';

test('Lines with texts for lookups take the direct path, with their results', async () => {
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

test('A new column takes the staged path once, and the direct path from then on', async () => {
  const { writeLines, writePlain, judge } = await openBothWays();
  writeLines([eventLine()]);
  expect(await writePlain(1)).toMatchObject({ numRecords: 1 });
  writeLines([eventLine({ age: 7 })]);
  expect(await writePlain(1)).toBeUndefined();
  await judge(1);
  expect(await writePlain(1)).toMatchObject({ numRecords: 1 });
});

test('A spool with fewer events than were counted takes the staged path', async () => {
  const { writeLines, writePlain, plainFile } = await openBothWays();
  writeLines([eventLine(), '']);
  expect(await writePlain(2)).toBeUndefined();
  expect(existsSync(plainFile)).toBe(false);
});

test('A batch that exceeds the memory of the engine takes the staged path, which keeps the order of its lines', async () => {
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
