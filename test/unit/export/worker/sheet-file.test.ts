import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import type { ExportSpec } from '../../../../src/export/jobs/export-spec.ts';
import { runExport } from '../../../../src/export/worker/run-export.ts';
import { openBenchLake } from '../../../bench/bench-lake.ts';
import { addDays, appCount } from '../../../bench/export-lake.ts';
import { planHere } from '../../../helpers/export-here.ts';
import { parseCsv } from '../../../helpers/export-oracle.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { inWholeRun } from '../../../helpers/in-turn.ts';
import { writeLake } from '../../../helpers/lake-fixture.ts';
import { readSheet } from '../../../helpers/read-sheet.ts';
import { findProgram } from '../../../helpers/shell.ts';

async function exportSheet(params: readonly Readonly<Record<string, string>>[], request: Partial<ExportSpec> = {}) {
  const tableDir = path.join(testFolder(), 'events');
  const rows = params.map((own, index) => ({
    event_id: `e${index}`,
    kind: 'custom_event' as const,
    id_app: 1,
    event_time: 1_700_000_000 + index,
    available_at: 1_700_000_000,
    custom_event_name: 'n',
    custom_event_params: own,
  }));
  await writeLake(tableDir, [rows]);
  const plan = planHere(tableDir, { selectors: ['eventId'], columns: 'params', format: 'xlsx', ...request });
  const outcome = await runExport(plan, () => undefined);
  const read = (): ReturnType<typeof readSheet> => readSheet(readFileSync(path.join(plan.folder, 'all.xlsx')));
  return { outcome, read, folder: plan.folder };
}

test('Numbers that a spreadsheet changes stay texts, and so does all text', async () => {
  const numbers = ['0', '7', '-12', '0.5', '1e-7', '123456789012345', '1.50'];
  const changed = ['-0', '1234567890123456', '0.1234567890123456', '12345678901234567890'];
  const { read } = await exportSheet([...numbers, ...changed].map((n) => ({ n, note: `=${n}` })));
  const cells = read().slice(1);
  const ofNumbers = numbers.map((text, index) => [text, index < numbers.length]);
  expect(cells.map(([, n]) => [n?.text, n?.isNumber])).toEqual([...ofNumbers, ...changed.map((text) => [text, false])]);
  expect(cells.map(([, , note]) => [note?.text, note?.isNumber])).toEqual(
    [...numbers, ...changed].map((n) => [`=${n}`, false]),
  );
});

test("Dates and times are date cells in the request's zone, except before the first day that programs number alike", async () => {
  const noon = Date.UTC(2024, 2, 31, 12) / 1000;
  const times = [-2_203_977_600, -2_203_891_200, 0, noon, 4_102_444_799];
  const rows = times.map((seconds, index) => ({
    event_id: `e${index}`,
    kind: 'custom_event' as const,
    id_app: 1,
    event_time: seconds,
    available_at: noon,
  }));
  const tableDir = path.join(testFolder(), 'events');
  await writeLake(tableDir, [rows]);
  const selectors = ['dtEvent', 'dateTimeEvent', 'eventId'];
  const plan = planHere(tableDir, { selectors, timezone: 'Europe/Berlin', format: 'xlsx' });
  expect(await runExport(plan, () => undefined)).toMatchObject({ kind: 'done' });
  const cells = readSheet(readFileSync(path.join(plan.folder, 'all.xlsx'))).slice(1);
  expect(cells.map(([date, time]) => [date?.text, time?.text])).toEqual([
    ['1900-02-28', '1900-02-28T01:00:00+01:00'],
    ['1900-03-01', '1900-03-01T01:00:00'],
    ['1970-01-01', '1970-01-01T01:00:00'],
    ['2024-03-31', '2024-03-31T14:00:00'],
    ['2100-01-01', '2100-01-01T00:59:59'],
  ]);
  expect(cells.map((row) => row.map(({ isDate = false }) => isDate))).toEqual(
    [false, true, true, true, true].map((isDate) => [isDate, isDate, false]),
  );
});

test('A text that looks like an escape, and each character that XML forbids, stay as they are', async () => {
  const texts = [
    '_x0041_',
    '_x005F_x0041_',
    '_x0041\u0001',
    '\u0001x0041_x0042\uFFFF_',
    'a_x_b',
    '\r\n',
    '\v\f\u0001\uFFFE\uFFFF',
    '<a href="x">&amp;</a>',
    ' a ',
    '\t',
  ];
  const { read } = await exportSheet(texts.map((t) => ({ t })));
  expect(read().map(([, t]) => t?.text)).toEqual(['params.t', ...texts]);
});

test('A cell that is too long for a sheet ends the export with the reason', async () => {
  const { outcome } = await exportSheet([{ t: 'x'.repeat(32_767) }, { t: 'x'.repeat(32_768) }]);
  expect(outcome).toMatchObject({
    kind: 'failed',
    reason: 'user',
    error: expect.stringContaining('Row 3 has a text') as string,
  });
  expect((await exportSheet([{ t: 'x'.repeat(32_767) }])).outcome).toMatchObject({ kind: 'done' });
});

test('A workbook without rows has the header', async () => {
  const { outcome, read } = await exportSheet([{ t: 'x' }], { eventName: ['other'] });
  expect(outcome).toMatchObject({ kind: 'done', files: [{ name: 'all.xlsx', rows: 0 }] });
  expect(read().map((row) => row.map(({ text }) => text))).toEqual([['eventId']]);
});

test('LibreOffice reads the cells of a workbook that the CSV of the same export has', async ({ skip }) => {
  inWholeRun(skip);
  const office = findProgram('soffice') ?? skip('no soffice on this machine (apt-get install libreoffice-calc)');
  const tricky = [
    '=1+1',
    '@x',
    '+7 495',
    '-5 %',
    "'quoted'",
    '1e5',
    '00042',
    '1.5.2024',
    '12:30',
    'TRUE',
    '9007199254740993',
  ];
  const texts = [...tricky, '"a", b;c', 'two\nlines', 'Ünï 日本 🎮 עברית', ' spaces ', '\t', '_x0041_', '#REF!', ''];
  const params = texts.map((text, n) => ({ text, n: String(n * 1.25), ...(n % 2 === 0 ? { even: 'yes' } : {}) }));
  const request = { selectors: ['eventId', 'dateTimeEvent', 'tsEvent', 'customUserId'] };
  const [sheet, csv] = await Promise.all(
    (['xlsx', 'csv'] as const).map((format) => exportSheet(params, { ...request, format })),
  );
  const folder = sheet?.folder ?? '';
  const filter = 'csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false';
  const profile = `-env:UserInstallation=${pathToFileURL(path.join(folder, 'profile')).href}`;
  const words = [profile, '--headless', '--convert-to', filter, '--outdir', folder, path.join(folder, 'all.xlsx')];
  await promisify(execFile)(office, words, { timeout: 60_000 });
  const read = parseCsv(readFileSync(path.join(folder, 'all.csv'), 'utf8'));
  const text = readFileSync(path.join(csv?.folder ?? '', 'all.csv'), 'utf8');
  // Date cells have the format of the workbook, without an offset.
  expect(read).toEqual(parseCsv(text.replaceAll(/^(e\d+,[\d-]{10})T([\d:]{8})\+00:00/gm, '$1 $2')));
  expect(read).toHaveLength(texts.length + 1);
}, 120_000);

test('More rows than a sheet can have end the export with the reason, before a file is written', async ({ skip }) => {
  inWholeRun(skip);
  const root = testFolder();
  await addDays(await openBenchLake(root), 0, 1, 1_000_001);
  const plan = planHere(
    path.join(root, 'lake', 'events'),
    { selectors: ['eventId'], format: 'xlsx' },
    { idApps: Array.from({ length: appCount }, (_, index) => index + 1), limits: { maxRows: 1e9 } },
  );
  const error = 'Too many lines in export: xlsx has at most 1000000';
  expect(await runExport(plan, () => undefined)).toEqual({ kind: 'failed', reason: 'user', error });
  expect(readdirSync(plan.folder)).toEqual(['work']);
  expect(readdirSync(path.join(plan.folder, 'work')).filter((name) => name.startsWith('result'))).toEqual([]);
}, 120_000);
