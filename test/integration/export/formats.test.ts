import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { selectors } from '../../../src/datasets/dictionaries.ts';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlList, sqlName } from '../../../src/lake/sql/literals.ts';
import { createExportArea, send, targetOf, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { importedEvents, oracleApps, toFixtureEvent } from '../../helpers/export-events.ts';
import { expectedRows, type OracleRequest } from '../../helpers/export-oracle.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { writeLake } from '../../helpers/lake-fixture.ts';
import { readSheet } from '../../helpers/read-sheet.ts';
import { runHere } from '../../helpers/worker-here.ts';

beforeEach(oneTestIn(3));

// Tests the files, not the process that writes them.

const events = importedEvents.slice(0, 700);
/** Small, so that the rows of the test need more than one file and more than one part. */
const limits = { singleFileMaxBytes: 20_000, partMaxBytes: 30_000 };
const names = [...selectors.keys()];
const span = { dateFrom: '2025-05-01', dateTo: '2025-06-30', timezone: 'UTC' };

/** A file as it was downloaded. */
interface Downloaded {
  readonly name: string;
  readonly type: string;
  readonly body: Buffer;
}

const readers: Readonly<Record<string, (files: readonly string[], columns: readonly string[]) => string>> = {
  csv: (files) =>
    `read_csv(${sqlList(files)}, header = true, all_varchar = true, delim = ',', quote = '"', escape = '"', nullstr = '')`,
  // Without the types, the reader would take times for timestamps.
  jsonl: (files, columns) =>
    `read_json(${sqlList(files)}, format = 'newline_delimited', maximum_object_size = 16777216, columns = {${columns.map((name) => `${sqlName(name)}: '${selectors.get(name)?.type === 'array' ? 'VARCHAR[]' : 'VARCHAR'}'`).join(', ')}})`,
  parquet: (files) => `read_parquet(${sqlList(files)})`,
};
/** Converts a list back to a cell of CSV. */
const listCell = (list: string): string =>
  `'[' || coalesce(array_to_string(list_transform(${list}, lambda item: '''' || replace(replace(replace(replace(item, '\\', '\\\\'), '''', '\\'''), chr(10), '\\n'), chr(13), '\\r') || ''''), ','), '') || ']'`;

/** Returns a time as a date cell has it. */
const withoutOffset = (text: string): string => text.replace(/^([\d-]{10}T[\d:]{8})[+-][\d:]{5}$/, '$1');

describe('the formats of export files', () => {
  const area = createExportArea(temporaryFolder());
  let running: RunningArea;
  let user: Credentials;
  let gunzipper: Credentials;
  let duckdb: Duckdb;

  async function download(caller: Credentials, parameters: Readonly<Record<string, string>>): Promise<Downloaded[]> {
    const id = await running.create(caller, new URLSearchParams(parameters).toString());
    const end = await running.waitForEnd(caller, id);
    expect(end).toMatchObject({ status: 'Success!' });
    return Promise.all(
      (end.files ?? []).map(async ({ link }) => {
        const answer = await send(running.port, targetOf(link));
        expect(answer.status).toBe(200);
        const name = path.basename(new URL(link).pathname).replace(/^\d+\.\w+\.[0-9a-f]{32}\./, '');
        return { name, type: String(answer.headers['content-type']), body: answer.body };
      }),
    );
  }

  /** The rows of files, as text cells, by a reader of their format. */
  async function readRows(
    files: readonly Downloaded[],
    format: string,
    columns: readonly string[],
  ): Promise<string[][]> {
    if (format === 'xlsx')
      return files.flatMap(({ body }) => readSheet(body).slice(1)).map((row) => row.map(({ text }) => text));
    const paths = files.map(({ name, body }) => {
      const file = path.join(area.dataDir, name);
      writeFileSync(file, body);
      return file;
    });
    const cells = columns.map((name) => {
      const column = sqlName(name);
      const isList = format !== 'csv' && selectors.get(name)?.type === 'array';
      return `coalesce(${isList ? `CASE WHEN eventName IS NOT NULL THEN ${listCell(column)} END` : `${column}::VARCHAR`}, '')`;
    });
    const rows = await duckdb.rows(
      `SELECT to_json([${cells.join(', ')}])::VARCHAR AS cells FROM ${readers[format]?.(paths, columns) ?? ''}`,
    );
    return rows.map((row) => JSON.parse(String(row['cells'])) as string[]);
  }

  beforeAll(async () => {
    for (const app of oracleApps) await area.addApp(app);
    user = await area.addUser({});
    gunzipper = await area.addUser({ files: 'gzip' });
    await writeLake(area.tableDir, [events.slice(0, 300).map(toFixtureEvent), events.slice(300).map(toFixtureEvent)]);
    duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
    running = await area.start({ runAttempt: runHere, maxExports: 100, ...limits });
  });
  afterAll(async () => {
    await running.stop();
    duckdb.close();
  });

  const request: OracleRequest = { event: 'customEvents', selectors: names, ...span };
  const times = new Map(events.map(({ eventId, eventTimestamp }) => [eventId, eventTimestamp]));
  const timeOf = (row: readonly string[]): number => times.get(row[names.indexOf('eventId')] ?? '') ?? 0;
  const inOrderOfTime = expectedRows(request, events)
    .slice(1)
    .toSorted(
      (a, b) =>
        timeOf(a) - timeOf(b) || (String(a[names.indexOf('eventId')]) < String(b[names.indexOf('eventId')]) ? -1 : 1),
    );

  it.each([
    ['csv', undefined, /^\d+\.csv\.gz$/, 'application/gzip'],
    ['csv', 'none', /^\d+\.csv$/, 'text/csv; charset=utf-8'],
    ['csv', 'gzip', /^\d+\.csv\.gz$/, 'application/gzip'],
    ['csv', 'zstd', /^csv\.zst$/, 'application/zstd'],
    ['jsonl', undefined, /^\d+\.jsonl\.gz$/, 'application/gzip'],
    ['jsonl', 'none', /^\d+\.jsonl$/, 'application/jsonl; charset=utf-8'],
    ['jsonl', 'gzip', /^\d+\.jsonl\.gz$/, 'application/gzip'],
    ['jsonl', 'zstd', /^jsonl\.zst$/, 'application/zstd'],
    ['parquet', undefined, /^parquet$/, 'application/vnd.apache.parquet'],
    ['parquet', 'none', /^parquet$/, 'application/vnd.apache.parquet'],
    ['parquet', 'gzip', /^parquet$/, 'application/vnd.apache.parquet'],
    ['parquet', 'zstd', /^parquet$/, 'application/vnd.apache.parquet'],
    ['xlsx', undefined, /^xlsx$/, 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet'],
  ])(
    'An export as %s with compression %s has every cell of every selector, in the order of time',
    async (format, compression, name, type) => {
      const files = await download(user, {
        event: 'customEvents',
        selectors: names.join(','),
        ...span,
        order: 'time',
        format,
        ...(compression === undefined ? {} : { compression }),
      });
      expect(files.length).toBeGreaterThanOrEqual(name.source.includes('\\d') ? 2 : 1);
      for (const file of files) {
        expect(file.name).toMatch(name);
        expect(file.type).toBe(type);
        const plain = file.name.endsWith('.gz') ? gunzipSync(file.body).length : 0;
        expect(plain).toBeLessThanOrEqual(limits.partMaxBytes);
      }
      const rows = await readRows(files, format, names);
      expect(rows).toEqual(format === 'xlsx' ? inOrderOfTime.map((row) => row.map(withoutOffset)) : inOrderOfTime);
    },
  );

  it.each([
    ['csv', 'gzip', 'eventId,tsEvent\n'],
    ['csv', 'none', 'eventId,tsEvent\n'],
    ['jsonl', 'gzip', ''],
    ['jsonl', 'none', ''],
  ])(
    'An export of no rows as %s with compression %s is one file that its readers accept',
    async (format, compression, text) => {
      const query = { event: 'installs', selectors: 'eventId,tsEvent', ...span, format, compression };
      const [file, ...others] = await download(user, query);
      expect(others).toEqual([]);
      expect(String(compression === 'gzip' ? gunzipSync(file?.body ?? '') : file?.body)).toBe(text);
    },
  );

  it.each(['csv', 'parquet'])(
    'An export of no rows as %s with zstd is one file that its readers accept',
    async (format) => {
      const query = {
        event: 'customEvents',
        selectors: 'eventId,tsEvent',
        ...span,
        format,
        compression: 'zstd',
        idApp: '999',
      };
      const files = await download(user, query);
      expect(files.length).toBe(1);
      expect(await readRows(files, format, ['eventId', 'tsEvent'])).toEqual([]);
    },
  );

  it.each(['csv', 'jsonl', 'parquet', 'xlsx'])(
    'An export of one selector as %s has a row for each event',
    async (format) => {
      const files = await download(user, { event: 'customEvents', selectors: 'customUserId', ...span, format });
      const rows = await readRows(files, format, ['customUserId']);
      expect(rows.length).toBe(inOrderOfTime.length);
    },
  );

  it('A workbook has numbers as far as a spreadsheet keeps them, texts for the others, and the same bytes again', async () => {
    const query = {
      event: 'customEvents',
      selectors: 'customUserId,tsEvent,hwid,age',
      ...span,
      format: 'xlsx',
      columns: 'params',
    };
    const [file, ...others] = await download(user, query);
    expect(others).toEqual([]);
    const [header = [], ...rows] = readSheet(file?.body ?? Buffer.alloc(0));
    expect(header.slice(0, 4).map(({ text }) => text)).toEqual(['customUserId', 'tsEvent', 'hwid', 'age']);
    expect(header.length).toBeGreaterThan(10);
    for (const cells of rows) {
      const [id, time, hwid, age] = cells;
      expect([id?.isNumber, time?.isNumber, hwid?.isNumber]).toEqual([false, true, false]);
      expect(age?.isNumber).toBe(age?.text !== '');
    }
    expect(rows.filter(([, , hwid]) => hwid?.text === '18446744073709551615').length).toBeGreaterThan(0);
    const [again] = await download(user, query);
    expect(again?.body.equals(file?.body ?? Buffer.alloc(0))).toBe(true);
  });

  it('A user with gzip files gets every file compressed, except if a request sets another compression', async () => {
    const query = { event: 'userRegistrations', selectors: 'eventId', ...span };
    const nameOf = async (more: Readonly<Record<string, string>>): Promise<string[]> =>
      (await download(gunzipper, { ...query, ...more })).map(({ name }) => name);
    expect(await nameOf({})).toEqual(['1.csv.gz']);
    expect(await nameOf({ compression: 'none' })).toEqual(['csv']);
    expect(await nameOf({ format: 'parquet' })).toEqual(['parquet']);
  });
});
