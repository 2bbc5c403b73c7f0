import { readFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import type { ExportSpec } from '../../../../src/export/jobs/export-spec.ts';
import type { WorkerLimits } from '../../../../src/export/jobs/worker-messages.ts';
import { runExport } from '../../../../src/export/worker/run-export.ts';
import { openDuckdb } from '../../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../../src/lake/sql/literals.ts';
import { planHere } from '../../../helpers/export-here.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../../../helpers/lake-fixture.ts';

const seconds = 1_700_000_000;

const event = (index: number, params: Readonly<Record<string, string>>): FixtureEvent => ({
  event_id: `e${String(index).padStart(3, '0')}`,
  kind: 'custom_event',
  id_app: 1,
  event_time: seconds + index,
  available_at: seconds,
  custom_event_name: 'n',
  custom_event_params: params,
});

/** Two files, so that a parameter of one file alone is a column of all rows. */
async function lakeOf(...files: readonly (readonly Readonly<Record<string, string>>[])[]): Promise<string> {
  const tableDir = path.join(testFolder(), 'events');
  let index = 0;
  await writeLake(
    tableDir,
    files.map((rows) => rows.map((params) => event((index += 1), params))),
  );
  return tableDir;
}

async function exportParams(tableDir: string, request: Partial<ExportSpec>, limits: Partial<WorkerLimits> = {}) {
  const plan = planHere(tableDir, { selectors: ['eventId'], columns: 'params', ...request }, { limits });
  const outcome = await runExport(plan, () => undefined);
  const files = outcome.kind === 'done' ? outcome.files.map(({ name }) => path.join(plan.folder, name)) : [];
  return { outcome, files };
}

const typed = [
  { whole: '7', long: '7', share: '0.5', won: 'true', day: '2026-05-01', at: '2026-05-01T10:00:00+02:00', note: 'a' },
  { whole: '-12', long: '123456789012345678901', share: '3', won: 'False', day: '', at: '2026-05-02', note: '7' },
  { whole: '', zip: '007', mixed: '1', share: '1e-7' },
  { mixed: 'one', Note: 'b', exact: '9007199254740993' },
  { exact: '0.5' },
];
const columns = ['params.Note', 'params.at', 'params.day', 'params.long', 'params.mixed', 'params.note_2'];

test('Parameters are columns of JSON lines with the narrowest type of all their values', async () => {
  const { outcome, files } = await exportParams(await lakeOf(typed.slice(0, 2), typed.slice(2)), { format: 'jsonl' });
  expect(outcome).toMatchObject({ columns: expect.arrayContaining(['eventId', ...columns]) as unknown });
  const rows = readFileSync(files[0] ?? '', 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line.replaceAll(/(\d{17,})/g, '"$1"')) as Record<string, unknown>);
  const withoutParams = Object.fromEntries(
    (outcome.kind === 'done' ? (outcome.columns ?? []) : []).map((name) => [name, null]),
  );
  expect(rows).toEqual(
    [
      {
        eventId: 'e001',
        'params.whole': 7,
        'params.long': 7,
        'params.share': 0.5,
        'params.won': true,
        'params.day': '2026-05-01',
        'params.at': '2026-05-01T10:00:00+02:00',
        'params.note_2': 'a',
      },
      {
        eventId: 'e002',
        'params.whole': -12,
        'params.long': '123456789012345678901',
        'params.share': 3,
        'params.won': false,
        'params.day': '',
        'params.at': '2026-05-02',
        'params.note_2': '7',
      },
      { eventId: 'e003', 'params.zip': '007', 'params.mixed': '1', 'params.share': 1e-7 },
      { eventId: 'e004', 'params.mixed': 'one', 'params.Note': 'b', 'params.exact': '9007199254740993' },
      { eventId: 'e005', 'params.exact': '0.5' },
    ].map((row) => ({ ...withoutParams, ...row })),
  );
});

test('Parameters are columns of Parquet with the types of the catalogue', async () => {
  const { files } = await exportParams(await lakeOf(typed.slice(0, 2), typed.slice(2)), { format: 'parquet' });
  const duckdb = await openDuckdb({ memoryMb: 128, threads: 1 });
  try {
    const source = `read_parquet(${sqlText(files[0] ?? '')})`;
    const described = await duckdb.rows(`DESCRIBE SELECT * FROM ${source}`);
    expect(Object.fromEntries(described.map((row) => [row['column_name'], row['column_type']]))).toEqual({
      eventId: 'VARCHAR',
      'params.whole': 'BIGINT',
      'params.long': 'DECIMAL(38,0)',
      'params.share': 'DOUBLE',
      'params.won': 'BOOLEAN',
      'params.day': 'DATE',
      'params.at': 'TIMESTAMP WITH TIME ZONE',
      'params.note_2': 'VARCHAR',
      'params.Note': 'VARCHAR',
      'params.zip': 'VARCHAR',
      'params.mixed': 'VARCHAR',
      'params.exact': 'VARCHAR',
    });
    const [row] = await duckdb.rows(
      `SELECT count("params.whole") AS whole, count("params.day") AS day, min(epoch("params.at")) AS at FROM ${source}`,
    );
    expect([row?.['whole'], row?.['day'], row?.['at']].map(Number)).toEqual([
      2,
      1,
      Date.parse('2026-05-01T08:00:00Z') / 1000,
    ]);
  } finally {
    duckdb.close();
  }
});

test('All parts have the same columns, in the order of their names', async () => {
  const rows = Array.from({ length: 300 }, (_, index) => ({ [`p${index % 40}`]: 'x'.repeat(200) }));
  const limits = { singleFileMaxBytes: 0, partMaxBytes: 20_000 };
  const { files } = await exportParams(await lakeOf(rows.slice(0, 150), rows.slice(150)), {}, limits);
  expect(files.length).toBeGreaterThan(3);
  const names = Array.from({ length: 40 }, (_, index) => `params.p${index}`).toSorted();
  for (const file of files)
    expect(gunzipSync(readFileSync(file)).toString('utf8').split('\n')[0]).toBe(['eventId', ...names].join(','));
});

test('Parts for spreadsheets begin with the mark and the header', async () => {
  const rows = Array.from({ length: 300 }, () => ({ p: '=1+1'.padEnd(200, ' ') }));
  const limits = { singleFileMaxBytes: 0, partMaxBytes: 20_000 };
  const { files } = await exportParams(await lakeOf(rows), { dialect: 'excel-semicolon' }, limits);
  expect(files.length).toBeGreaterThan(3);
  for (const file of files) {
    const [header, first] = gunzipSync(readFileSync(file)).toString('utf8').split('\n');
    expect([header, first?.split(';')[1]?.trim()]).toEqual(['\uFEFFeventId;params.p', "'=1+1"]);
  }
});

test('With semicolons, decimal parameters have a comma, and texts with full stops stay', async () => {
  const tableDir = await lakeOf([
    { share: '1.5', version: '1.5.2', n: '-3' },
    { share: '-2', version: '2', n: '4' },
  ]);
  const textOf = async (dialect: ExportSpec['dialect']): Promise<string> => {
    const { files } = await exportParams(tableDir, dialect === undefined ? {} : { dialect });
    return readFileSync(files[0] ?? '', 'utf8');
  };
  expect(await textOf('excel-semicolon')).toBe(
    '\uFEFFeventId;params.n;params.share;params.version\ne001;-3;1,5;1.5.2\ne002;4;-2;2\n',
  );
  expect(await textOf(undefined)).toBe(
    'eventId,params.n,params.share,params.version\ne001,-3,1.5,1.5.2\ne002,4,-2,2\n',
  );
});

test('More parameters than columns end an export with the reason, before a file is written', async () => {
  const tableDir = await lakeOf([Object.fromEntries(Array.from({ length: 201 }, (_, index) => [`p${index}`, 'x']))]);
  const { outcome } = await exportParams(tableDir, {});
  expect(outcome).toEqual({
    kind: 'failed',
    reason: 'user',
    error: expect.stringContaining('more than 200 parameters') as unknown,
  });
});
