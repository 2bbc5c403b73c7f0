import { expect, it, test } from 'vitest';
import type { Calendar } from '../../../../src/export/api/calendar.ts';
import { parseExportRequest } from '../../../../src/export/api/parse-request.ts';
import { parseExportSpec } from '../../../../src/export/jobs/export-spec.ts';

const noDays = {} as Calendar;
const parse = (given: Readonly<Record<string, string>>) =>
  parseExportRequest(new Map(Object.entries(given).map(([name, value]) => [name, [value]])), Date.now(), noDays);
const list = { event: 'payments', sinceVersion: '12', erasures: '1' };

test('A request for the erasure list has its columns, and is stored and read again', async () => {
  const spec = await parse({ ...list, idApp: '1,2', format: 'parquet' });
  expect(spec).toMatchObject({ erasures: true, selectors: ['idApp', 'eventId', 'kind', 'before'], sinceVersion: '12' });
  expect(parseExportSpec(JSON.parse(JSON.stringify(spec)))).toEqual(spec);
});

it.each([
  [{ event: 'payments', erasures: '1' }, 'Argument sinceVersion is expected but not set: erasures needs it'],
  [{ ...list, selectors: 'eventId' }, 'Argument selectors is not allowed with erasures'],
  [{ ...list, order: 'time' }, 'Argument order is not allowed with erasures'],
  [{ ...list, tsFrom: '0', tsTo: '1' }, 'Argument tsFrom is not allowed with erasures'],
  [{ ...list, erasures: '0' }, 'Argument erasures is invalid'],
  [{ ...list, event: 'newUsers' }, 'is not allowed for event newUsers'],
  [{ event: 'payments', sinceVersion: '12' }, 'Argument selectors is expected but not set'],
])('A request %j is rejected with a reason', async (given, reason) => {
  expect(JSON.stringify(await parse(given))).toContain(reason);
});
