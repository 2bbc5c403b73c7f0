import path from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../src/lake/sql/literals.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { openLoadArea, type LoadArea } from '../../helpers/loads.ts';

beforeEach(oneTestIn(3));

let folder: string;
let area: LoadArea;

beforeEach(async () => {
  folder = testFolder();
  area = await openLoadArea(folder, 'payments');
});

/** Writes a Parquet file of a query's rows. */
async function writeParquet(query: string): Promise<string> {
  const file = path.join(folder, 'p.parquet');
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  await duckdb.run(
    `COPY (SELECT 1700000000 AS "tsEvent", 1 AS "idApp", ${query}) TO ${sqlText(file)} (FORMAT parquet)`,
  );
  duckdb.close();
  return file;
}

const badType = (field: string) => ({ bad: [{ line: 1, reason: 'bad_type', field }] });

describe('lines of JSON', () => {
  it.each(['null', '"text"', '7', '{"tsEvent":1', 'x'])(
    'A file whose one line is %s, no object, has a bad row on line 1',
    async (line) => {
      const file = area.write('line.ndjson', `${line}\n`);
      for (const idApp of [undefined, 1])
        expect(await area.load(file, { format: 'ndjson', ...(idApp === undefined ? {} : { idApp }) })).toMatchObject({
          badRows: 1,
          bad: [{ line: 1, reason: 'bad_json' }],
        });
    },
  );

  it('An object without a member is a bad row, and so is an object whose members are all dropped', async () => {
    const missing = { badRows: 2, bad: [{ line: 1, reason: 'missing', field: 'tsEvent' }, { line: 3 }] };
    expect(await area.load(area.write('empty.ndjson', '{}\n\n{}\n'))).toMatchObject(missing);
  });

  it('A number of at most 15 digits is a valid amount, and one of more digits is a bad row', async () => {
    const totals = [
      '123456789012',
      '123456789012.5',
      '12345678901234.5',
      '-100000000000.0',
      '1.5e12',
      '99999999999999',
    ];
    const lines = totals.map((total, n) => `{"tsEvent":${n},"idApp":1,"total":${total}}`);
    expect(await area.load(area.write('large.ndjson', lines.join('\n')))).toMatchObject({ stored: totals.length });
    expect((await area.rows('total::VARCHAR AS total')).map((row) => row['total'])).toEqual([
      '123456789012.0000',
      '123456789012.5000',
      '12345678901234.5000',
      '-100000000000.0000',
      '1500000000000.0000',
      '99999999999999.0000',
    ]);
    // Also with another bad row, where each row is checked individually.
    const mixed = ['{"tsEvent":1,"idApp":1,"total":1234567890123.456}', '{"idApp":1}', ...lines.slice(0, 2)].join('\n');
    expect(await area.load(area.write('mixed.ndjson', mixed))).toMatchObject({
      bad: [
        { line: 1, reason: 'bad_type', field: 'total' },
        { line: 2, reason: 'missing' },
      ],
    });
    const revenues = await openLoadArea(testFolder(), 'adMonetization');
    const revenue = revenues.write('revenue.ndjson', '{"tsEvent":1,"idApp":1,"revenue":12345678.25}\n');
    expect(await revenues.load(revenue)).toMatchObject({ stored: 1 });
    expect(await revenues.rows('revenue::VARCHAR AS revenue')).toEqual([{ revenue: '12345678.25000000' }]);
  });

  it('The last of repeated names in an object counts, as in imports', async () => {
    const lines = [
      '{"tsEvent":1700000000,"idApp":9,"eventId":"a","total":"7","idApp":1,"total":12.50}',
      '{"tsEvent":1700000001,"idApp":1,"productId":"x","productId":null,"params.name":["k"],"params.value":["\\"v"]}',
      '{"tsEvent":1700000002,"idApp":1,"productId":"once"}',
    ];
    expect(await area.load(area.write('twice.ndjson', `${lines.join('\n')}\n`))).toMatchObject({ stored: 3 });
    expect(await area.rows('id_app, total::VARCHAR AS total, product_id AS product')).toEqual([
      { id_app: 1n, total: '12.5000', product: null },
      { id_app: 1n, total: null, product: null },
      { id_app: 1n, total: null, product: 'once' },
    ]);
    const last = area.write('last.ndjson', '{"tsEvent":1700000003,"idApp":1,"total":1,"total":"x"}\n');
    expect(await area.load(last)).toMatchObject({ bad: [{ line: 1, reason: 'bad_type', field: 'total' }] });
  });
});

describe('the app of a row', () => {
  it('An SDKKey of another app than idApp is a conflict, and an unknown one is ignored next to idApp', async () => {
    const lines = ['1700000000,1,first-key', '1700000001,1,unknown', '1700000002,,second-key', '1700000003,2,'];
    const csv = ['tsEvent,idApp,SDKKey', ...lines].join('\n');
    expect(await area.load(area.write('good.csv', csv))).toMatchObject({ stored: 4 });
    expect((await area.rows('id_app')).map((row) => row['id_app'])).toEqual([1n, 1n, 2n, 2n]);
    expect(await area.load(area.write('bad.csv', `${csv}\n1700000004,1,second-key`))).toMatchObject({
      bad: [{ line: 6, reason: 'conflict', field: 'SDKKey' }],
    });
  });
});

describe('columns of Parquet', () => {
  it('A text without a string annotation is UTF-8, in a list too, and other bytes are a bad row', async () => {
    const blobs = (id: string, value: string) =>
      writeParquet(
        `'${id}'::BLOB AS "customUserId", ['k'::BLOB] AS "params.name", ['${value}'::BLOB] AS "params.value"`,
      );
    expect(await area.load(await blobs(String.raw`\xD0\x9F`, String.raw`v\xC3\xA9`))).toMatchObject({ stored: 1 });
    expect(await area.rows('custom_user_id AS id, custom_event_params AS params')).toEqual([
      { id: 'П', params: [{ key: 'k', value: 'vé' }] },
    ]);
    expect(await area.load(await blobs(String.raw`\xFF`, 'v'))).toMatchObject(badType('customUserId'));
    expect(await area.load(await blobs('u', String.raw`\xFF`))).toMatchObject(badType('params.value'));
    const total = await writeParquet(`'1.50'::BLOB AS "total", ''::BLOB AS "productId"`);
    expect(await area.load(total)).toMatchObject({ stored: 1 });
    expect(await area.rows('total::VARCHAR AS total, product_id')).toContainEqual({
      total: '1.5000',
      product_id: null,
    });
  });

  it('A struct that is NULL counts as missing', async () => {
    const file = await writeParquet(`CAST(NULL AS STRUCT(a INTEGER)) AS "productId"`);
    expect(await area.load(file)).toMatchObject({ stored: 1 });
  });

  it.each([
    ['struct', `{'a': 1} AS "productId"`, 'productId'],
    ['map', `MAP {'a': 'b'} AS "productId"`, 'productId'],
    ['list', `['a'] AS "productId"`, 'productId'],
    ['struct', `{'a': 1} AS "eventId"`, 'eventId'],
    ['struct', `{'a': 1} AS "total"`, 'total'],
    ['list of numbers', `[1] AS "params.name", ['a'] AS "params.value"`, 'params.name'],
  ])('A %s in a field of another type is a bad row', async (_, query, field) => {
    expect(await area.load(await writeParquet(query))).toMatchObject({ bad: [{ line: 1, field }] });
  });
});
