import { readdirSync } from 'node:fs';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import path from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { readFailedFile, listFailedRows } from '../../../src/lake/files/failed-events.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../src/lake/sql/literals.ts';
import { isLocked } from '../../../src/runtime/files/lock.ts';
import { listLoads } from '../../../src/admin/load/undo-load.ts';
import type { LoadOutcome } from '../../../src/admin/load/load.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { at, openLoadArea, type LoadArea } from '../../helpers/loads.ts';

beforeEach(oneTestIn(3));

let folder: string;
let area: LoadArea;

beforeEach(async () => {
  folder = testFolder();
  area = await openLoadArea(folder, 'payments');
});

const header = 'tsEvent,idApp,eventId,total,currency,isTest,params.name,params.value';
const lines = [
  `1700000000,1,a,1.5,EUR,0,"['k','it\\'s']","['v','w,x']"`,
  '1700000001,2,b,12.0000,USD,,[],[]',
  '1700000002,1,,0.0001,"RUB",1,,',
];
const csv = `${[header, ...lines].join('\n')}\n`;
const columns = 'event_id, id_app, CAST(total AS VARCHAR) AS total, currency, is_test, custom_event_params AS params';

/** Rows of the table for the three lines, in any format. */
const expected = [
  {
    event_id: 'a',
    id_app: 1n,
    total: '1.5000',
    currency: 'EUR',
    is_test: 0,
    params: [
      { key: 'k', value: 'v' },
      { key: "it's", value: 'w,x' },
    ],
  },
  { event_id: 'b', id_app: 2n, total: '12.0000', currency: 'USD', is_test: 0, params: null },
  {
    event_id: expect.stringMatching(/^[0-9a-f]{32}$/) as unknown,
    id_app: 1n,
    total: '0.0001',
    currency: 'RUB',
    is_test: 1,
    params: null,
  },
];

const json = [
  {
    tsEvent: 1700000000,
    idApp: 1,
    eventId: 'a',
    total: 1.5,
    currency: 'EUR',
    isTest: 0,
    'params.name': ['k', "it's"],
    'params.value': ['v', 'w,x'],
  },
  {
    tsEvent: '1700000001',
    idApp: '2',
    eventId: 'b',
    total: '12',
    currency: 'USD',
    'params.name': [],
    'params.value': [],
  },
  { tsEvent: 1700000002, SDKKey: 'first-key', total: 0.0001, currency: 'RUB', isTest: 1 },
];
const ndjson = json.map((row) => `${JSON.stringify(row)}\n`).join('');

/** Lists the files of the table's folder that no commit names. */
async function listUnnamed(): Promise<string[]> {
  const named = new Set((await readSnapshot(area.tableDir)).files.map((file) => file.path));
  return readdirSync(area.tableDir, { recursive: true, encoding: 'utf8' }).filter(
    (name) => /^_(load|unload|young)\/.*\./.test(name) && !named.has(name),
  );
}

describe('the formats of a loaded file', () => {
  it('A CSV file, a file of JSON lines and a Parquet file of the same rows become the same rows of the table', async () => {
    const parquet = path.join(folder, 'p.parquet');
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    await duckdb.run(
      `COPY (SELECT * FROM (VALUES
        (1700000000, 1::BIGINT, 'a', 1.5::DOUBLE, 'EUR', 0, ['k', 'it''s'], ['v', 'w,x']),
        (1700000001, 2, 'b', 12, 'USD', NULL, [], []),
        (1700000002, 1, NULL, 0.0001, 'RUB', 1, NULL, NULL)) AS t("tsEvent", "idApp", "eventId", "total", "currency", "isTest", "params.name", "params.value")) TO ${sqlText(parquet)} (FORMAT parquet)`,
    );
    duckdb.close();
    expect(await area.load(area.write('p.csv', csv))).toMatchObject({ rows: 3, stored: 3, repeats: 0, failed: 0 });
    expect(await area.rows(columns)).toEqual(expected);
    expect(await area.load(area.write('p.ndjson', ndjson))).toMatchObject({ rows: 3, stored: 0, repeats: 3 });
    expect(await area.load(parquet)).toMatchObject({ rows: 3, stored: 0, repeats: 3 });
    expect(await area.rows(columns)).toEqual(expected);
    expect(await listUnnamed()).toEqual([]);
  });
});

describe('the columns of a loaded file', () => {
  it('A file is stored with its own columns, and its rows are read with all columns of the table', async () => {
    await area.load(area.write('p.csv', csv));
    const { files } = await readSnapshot(area.tableDir);
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    const stored = await duckdb.rows(`DESCRIBE SELECT * FROM read_parquet(${sqlText(files[0]?.absolutePath ?? '')})`);
    duckdb.close();
    expect(stored.map((row) => row['column_name'])).toContain('total');
    expect(stored.map((row) => row['column_name'])).not.toContain('id_campaign');
    expect(await area.rows('id_campaign')).toEqual(Array.from({ length: 3 }, () => ({ id_campaign: null })));
  });

  it('A name that only a late line of JSON has is found', async () => {
    const usual = Array.from({ length: 1200 }, (_, n) =>
      JSON.stringify({ tsEvent: 1700000000 + n, idApp: 1, ...(n % 7 === 0 ? {} : { [`idSub${1 + (n % 5)}`]: 'x' }) }),
    );
    const late = (name: string): string =>
      [...usual, JSON.stringify({ tsEvent: 1700009999, idApp: 1, [name]: 'late' })].join('\n');
    expect(await area.load(area.write('odd.ndjson', late('nobody')))).toMatchObject({
      refused: { reason: 'unknown_field', field: 'nobody' },
    });
    expect(await area.load(area.write('late.ndjson', late('productId')))).toMatchObject({ stored: 1201 });
    expect((await area.rows('product_id')).filter((row) => row['product_id'] === 'late')).toHaveLength(1);
  });
});

describe('a file that was loaded', () => {
  it('A file that is loaded again adds nothing, and a compressed or overlapping one only the rows that are new', async () => {
    const first = area.write('first.csv', csv);
    await area.load(first);
    expect(await area.load(first)).toMatchObject({ stored: 0, loadedBefore: true });
    expect(await area.load(area.write('same.csv.gz', gzipSync(csv)))).toMatchObject({ rows: 3, stored: 0, repeats: 3 });
    const more = `${csv}1700000009,1,new,3,EUR,0,,\n1700000009,1,new,3,EUR,0,,\n`;
    expect(await area.load(area.write('more.csv', more))).toMatchObject({ rows: 5, stored: 1, repeats: 4 });
    expect(await area.rows('event_id')).toHaveLength(4);
  });

  it('A stream of standard input is loaded as a file of the same bytes is', async () => {
    const stdin = Readable.from([Buffer.from(csv.slice(0, 50)), Buffer.from(csv.slice(50))]);
    expect(await area.load(stdin)).toMatchObject({ file: '-', stored: 3 });
    expect(await area.load(area.write('p.csv', csv))).toMatchObject({ loadedBefore: true });
  });

  it('Two loads of one file at once add its rows once', async () => {
    const file = area.write('p.csv', csv);
    const outcomes = await Promise.all([area.load(file), area.load(file)]);
    expect(outcomes.reduce((sum, outcome) => sum + ('stored' in outcome ? outcome.stored : 0), 0)).toBe(3);
    expect(await area.rows(columns)).toEqual(expected);
    expect(await listUnnamed()).toEqual([]);
  });

  it('A load that another one overtakes compares the rows that it has added, and becomes available after it', async () => {
    const late = area.write('late.csv', `${csv}1700000009,1,late,3,EUR,0,,\n`);
    let overtaken = false;
    const outcome = await area.load(
      late,
      {},
      {
        async crashPoint(step) {
          if (step !== 'load-staged' || overtaken) return;
          overtaken = true;
          await area.load(area.write('quick.csv', csv));
        },
      },
    );
    expect(outcome).toMatchObject({ rows: 4, stored: 1, repeats: 3 });
    const rows = await area.rows('event_id, available_at');
    expect(rows).toHaveLength(4);
    const [a, , , last] = rows.map((row) => (row['available_at'] as Date).getTime());
    expect(last).toBeGreaterThan(a ?? Infinity);
  });
});

describe('a map of fields', () => {
  it('A map renames fields of another tracker and drops unwanted ones', async () => {
    const file = area.write('other.csv', 'time,sum,cur,note\n1700000000,1.5,EUR,x\n');
    expect(await area.load(file)).toMatchObject({ refused: { reason: 'unknown_field', field: 'time' } });
    const map = { time: 'tsEvent', sum: 'total', cur: 'currency', note: null };
    expect(await area.load(file, { map })).toMatchObject({ refused: { reason: 'missing_field', field: 'idApp' } });
    expect(await area.load(file, { map, idApp: 2 })).toMatchObject({ stored: 1 });
    expect(await area.rows('id_app, CAST(total AS VARCHAR) AS total')).toEqual([{ id_app: 2n, total: '1.5000' }]);
  });
});

const badCsv = [
  header,
  '1700000000,1,good,1.5,EUR,0,,',
  ',1,y,1,EUR,0,,',
  '',
  '1700000000,9,z,1,EUR,0,,',
  '1700000000,1,"two',
  'lines",1,eur,0,,',
  '\uFEFF1,2',
  '1700000000,1,u,1.00005,EUR,0,,',
].join('\n');
const badOfCsv = [
  { line: 3, reason: 'missing', field: 'tsEvent' },
  { line: 5, reason: 'unknown_app', field: 'idApp' },
  { line: 6, reason: 'bad_pattern', field: 'currency' },
  { line: 8, reason: 'bad_line' },
  { line: 9, reason: 'inexact', field: 'total' },
];

describe('bad rows', () => {
  it('A file with a bad row is refused entirely, and its bad rows are named by line, reason and field', async () => {
    expect(await area.load(area.write('bad.csv', badCsv))).toMatchObject({
      refused: { reason: 'bad_rows' },
      badRows: 5,
      bad: badOfCsv,
    });
    expect(await area.rows('event_id')).toEqual([]);
    expect(await listUnnamed()).toEqual([]);
  });

  it('Bad rows within the limit are kept as failed rows until the load is undone, and the others are loaded', async () => {
    const outcome = await area.load(area.write('bad.csv', badCsv), { maxBad: 5 });
    expect(outcome).toMatchObject({ rows: 6, stored: 1, bad: 5, failed: 5, first: badOfCsv });
    const { txns, lake } = await readSnapshot(area.tableDir);
    expect(lake?.totals).toEqual({ streamed: 6, stored: 1, failed: 5, repeats: 0, erased: 0 });
    const failedFolder = path.join(area.lakeDir, 'failed', 'payments');
    const { files } = await listFailedRows(failedFolder, txns);
    const failed = (await Promise.all(files.map(readFailedFile))).flat();
    expect(failed.map((event) => event.load?.line)).toEqual([3, 5, 6, 8, 9]);
    expect(JSON.parse(failed[2]?.line ?? '')).toMatchObject({ eventId: 'two\nlines', currency: 'eur' });
    expect(failed[3]?.line).toBe('\uFEFF1,2');
    await area.undo('load' in outcome ? outcome.load : '');
    expect(readdirSync(failedFolder)).toEqual([]);
    expect((await readSnapshot(area.tableDir)).lake?.totals).toEqual({
      streamed: 6,
      stored: 0,
      failed: 0,
      repeats: 0,
      erased: 6,
    });
  });

  it('Concurrent loads of one file leave all bad rows of the one that is committed', async () => {
    const bad = area.write('bad.csv', badCsv);
    const failedFolder = path.join(area.lakeDir, 'failed', 'payments');
    const later: Promise<LoadOutcome>[] = [];
    const outcome = await area.load(
      bad,
      { maxBad: 5 },
      {
        async crashPoint(step) {
          if (step !== 'load-staged') return;
          const stop = new AbortController();
          const stopped = area.load(
            bad,
            { maxBad: 5 },
            { ...at('load-written', () => stop.abort()), signal: stop.signal },
          );
          await expect(stopped).rejects.toMatchObject({ code: 'stopping' });
          expect(readdirSync(failedFolder)).toHaveLength(1);
          await new Promise<void>((resolve) => {
            later.push(area.load(bad, { maxBad: 5 }, at('load-written', resolve)));
          });
        },
      },
    );
    expect(outcome).toMatchObject({ stored: 1, failed: 5 });
    expect(await Promise.all(later)).toMatchObject([{ stored: 0, loadedBefore: true }]);
    const { txns, lake } = await readSnapshot(area.tableDir);
    expect(lake?.totals).toEqual({ streamed: 6, stored: 1, failed: 5, repeats: 0, erased: 0 });
    const { files, stale } = await listFailedRows(failedFolder, txns);
    expect((await Promise.all(files.map(readFailedFile))).flat()).toHaveLength(5);
    expect(stale).toEqual([]);
    expect(await listUnnamed()).toEqual([]);
  });

  it('Lines of JSON that are not objects, and invalid texts, are bad rows', async () => {
    const text =
      '{"tsEvent":1700000000,"idApp":1,"eventId":"{x"}\nnot json\n\n[1]\n{"tsEvent":1700000000,"idApp":1,"currency":{"a":1}}\n';
    expect(await area.load(area.write('bad.ndjson', text))).toMatchObject({
      bad: [
        { line: 2, reason: 'bad_json' },
        { line: 4, reason: 'bad_json' },
        { line: 5, reason: 'bad_type', field: 'currency' },
      ],
    });
    expect(await area.load(area.write('good.ndjson', text.split('\n')[0] ?? ''))).toMatchObject({ stored: 1 });
  });
});

/** Returns a line of JSON whose amount is a number. */
const paymentOf = (total: string): string => `{"eventId":"${total}","tsEvent":1,"idApp":1,"total":${total}}\n`;

describe('the rows of a load', () => {
  it('An amount with more digits than a double is exact as a JSON string, and a bad row as a JSON number', async () => {
    const payments = await openLoadArea(testFolder(), 'payments');
    const text = `{"eventId":"text","tsEvent":1,"idApp":1,"total":"99999999999998.1234"}\n`;
    const exact = payments.write('exact.ndjson', paymentOf('12345678901.1234') + paymentOf('-2.50') + text);
    expect(await payments.load(exact)).toMatchObject({ rows: 3, stored: 3, failed: 0 });
    expect((await payments.rows('total::VARCHAR AS total')).map(({ total }) => String(total)).toSorted()).toEqual([
      '-2.5000',
      '12345678901.1234',
      '99999999999998.1234',
    ]);
    expect(await payments.load(payments.write('rounded.ndjson', paymentOf('99999999999998.1234')))).toMatchObject({
      badRows: 1,
      bad: [{ line: 1, reason: 'bad_type', field: 'total' }],
    });
  });

  it('The first row of an identity in a file is kept, at any distance', async () => {
    const payments = await openLoadArea(testFolder(), 'payments');
    const repeated = Array.from({ length: 300_000 }, (_, n) => `e${n % 150_000},1750000000,1,p${n}`);
    const file = payments.write('twice.csv', `eventId,tsEvent,idApp,productId\n${repeated.join('\n')}\n`);
    const limits = { memoryMb: 512, threads: 2 };
    expect(await payments.load(file, {}, { limits })).toMatchObject({
      rows: 300_000,
      stored: 150_000,
      repeats: 150_000,
    });
    const wrong = (await payments.rows('event_id, product_id')).filter(
      (row) => String(row['event_id']).slice(1) !== String(row['product_id']).slice(1),
    );
    expect(wrong.slice(0, 3)).toEqual([]);
  });
});

describe('undoing a load', () => {
  it('An undo removes only rows of its load, and both it and a load that had left the same rows out can be repeated', async () => {
    const file = area.write('p.csv', csv);
    const wide = area.write('wide.csv', `${csv}1700000009,1,new,3,EUR,0,,\n`);
    const first = await area.load(file);
    await area.load(wide);
    const loadId = 'load' in first ? first.load : '';
    expect(await area.undo(loadId)).toMatchObject({ rows: 3 });
    expect(await area.undo(loadId)).toMatchObject({ rows: 0, undoneBefore: true });
    expect(await area.rows('event_id')).toEqual([{ event_id: 'new' }]);
    expect(await area.load(wide)).toMatchObject({ stored: 3, repeats: 1 });
    expect(await area.load(wide)).toMatchObject({ loadedBefore: true });
    expect(await area.load(file)).toMatchObject({ stored: 0, repeats: 3 });
    expect(
      (await listLoads(area.tableDir, 'payments', { memoryMb: 256, threads: 1 })).map(({ rows, status }) => [
        rows,
        status,
      ]),
    ).toEqual([
      [4, 'loaded'],
      [0, 'loaded'],
    ]);
  });

  it('A repeated load replaces its own failed rows, under the lock that erasures take', async () => {
    const first = await area.load(area.write('p.csv', csv));
    const file = area.write('bad.csv', `${csv}1700000003,1,bad,x,EUR,0,,\n`);
    const locked: boolean[] = [];
    const loadBad = () =>
      area.load(
        file,
        { maxBad: 1 },
        {
          crashPoint: async (step) => {
            if (step === 'load-failed-written') locked.push(isLocked(area.tableDir));
          },
        },
      );
    await loadBad();
    await area.undo('load' in first ? first.load : '');
    expect(await loadBad()).toMatchObject({ stored: 3, failed: 1 });
    expect(locked).toEqual([false, true]);
    const { lake } = await readSnapshot(area.tableDir);
    expect(lake?.totals).toMatchObject({ stored: 3, failed: 1 });
    expect(readdirSync(path.join(area.lakeDir, 'failed', 'payments'))).toHaveLength(1);
  });
});
