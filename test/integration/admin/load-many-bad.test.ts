import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { maxListedBadRows } from '../../../src/admin/load/bad-rows.ts';
import { planFileFields } from '../../../src/admin/load/file-fields.ts';
import { openSource } from '../../../src/admin/load/source.ts';
import { loadApps, stageRows } from '../../../src/admin/load/stage-rows.ts';
import { testFolder } from '../../helpers/folder.ts';
import { getDataset, loadableApps, openLoadArea } from '../../helpers/loads.ts';

const header = 'tsEvent,idApp,total';

describe('bad rows of any number', () => {
  it('Of more bad rows than the limit only the first are read from the engine', async () => {
    const file = path.join(testFolder(), 'bad.csv');
    writeFileSync(
      file,
      [header, ...Array.from({ length: 3000 }, (_, n) => (n % 2 === 0 ? '1,2' : '1,1,x'))].join('\n'),
    );
    const dataset = getDataset('payments');
    const engine = await openDuckdb({ memoryMb: 512, threads: 1 });
    let most = 0;
    const duckdb: Duckdb = {
      ...engine,
      async rows(sql, values) {
        const rows = await engine.rows(sql, values);
        most = Math.max(most, rows.length);
        return rows;
      },
    };
    await loadApps(duckdb, loadableApps);
    const loadSource = await openSource(duckdb, { file, format: 'csv', gzip: false });
    const planned = planFileFields(dataset, header.split(','), {}, false);
    if ('reason' in loadSource || 'reason' in planned) throw new Error('the file was refused');
    const staged = await stageRows(duckdb, loadSource, {
      dataset,
      fields: planned.fields,
      idApp: undefined,
      bounds: { maxBad: 10, maxKeptBytes: 1000 },
      stamp: { loadId: '0'.repeat(32), receivedAtMs: 0, availableAtMs: 0 },
      signal: new AbortController().signal,
      makeRoom: () => Promise.resolve(testFolder()),
    });
    engine.close();
    if ('reason' in staged) throw new Error(staged.detail);
    const { bad } = staged;
    expect([bad.count, bad.failed.length, most]).toEqual([3000, 0, maxListedBadRows]);
    expect(bad.first.slice(0, 3)).toEqual([
      { line: 2, reason: 'bad_line' },
      { line: 3, reason: 'bad_type', field: 'total' },
      { line: 4, reason: 'bad_line' },
    ]);
  });

  it('A file is refused if its bad rows are together too large to keep, for any limit of their number', async () => {
    const area = await openLoadArea(testFolder(), 'payments');
    const file = area.write('bad.csv', [header, '1,1,1.5', '1,2', '1,1,xyz'].join('\n'));
    const bytes = '1,2'.length + JSON.stringify({ tsEvent: '1', idApp: '1', total: 'xyz' }).length;
    expect(await area.load(file, { maxBad: 2, maxKeptBytes: bytes - 1 })).toMatchObject({
      refused: { reason: 'bad_rows', detail: expect.stringContaining(`${bytes - 1} bytes`) as string },
      badRows: 2,
      bad: [{ line: 3 }, { line: 4 }],
    });
    expect(await area.load(file, { maxBad: 2, maxKeptBytes: bytes })).toMatchObject({ stored: 1, failed: 2 });
  });
});

describe('the lines of bad rows', () => {
  it.each([
    ['LF', '\n'],
    ['CRLF', '\r\n'],
  ])(
    'Bad rows are named by their lines behind inches, blank lines and bad lines, where lines end by %s',
    async (_, end) => {
      const area = await openLoadArea(testFolder(), 'payments');
      const lines = [`${header},productId`, '1,1,1,5" phone', '1,1,x,y', '', '1,2', '1,1,2,7"', '1,2', '1,1,z,a "b" c'];
      expect(await area.load(area.write('inches.csv', lines.join(end)))).toMatchObject({
        badRows: 4,
        bad: [
          { line: 3, reason: 'bad_type' },
          { line: 5, reason: 'bad_line' },
          { line: 7, reason: 'bad_line' },
          { line: 8, reason: 'bad_type' },
        ],
      });
    },
  );

  it('A bad line with the text of a system error counts as a bad line', async () => {
    const area = await openLoadArea(testFolder(), 'payments');
    const file = area.write(
      'quoted.csv',
      [header, '1,1,1.5', '1,1,2,No space left on device', '1,1,"a"bad_alloc'].join('\n'),
    );
    expect(await area.load(file)).toMatchObject({ refused: { reason: 'bad_rows' }, badRows: 2 });
  });
});
