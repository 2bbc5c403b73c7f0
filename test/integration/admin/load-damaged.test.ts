import { closeSync, openSync, readFileSync, truncateSync, writeSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { beforeEach, describe, expect, it } from 'vitest';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../src/lake/sql/literals.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { openLoadArea, type LoadArea } from '../../helpers/loads.ts';

beforeEach(oneTestIn(3));

let area: LoadArea;

beforeEach(async () => {
  area = await openLoadArea(testFolder(), 'payments');
});

const header = 'tsEvent,idApp,eventId,total\n';
const rows = Array.from({ length: 20 }, (_, n) => `${1_700_000_000 + n},1,row${n},1.5\n`);
const csv = header + rows.join('');
const ndjson = rows.map((_, n) => `{"tsEvent":${1_700_000_000 + n},"idApp":1,"eventId":"row${n}"}\n`).join('');
/** Of gzip, after the text. */
const footerBytes = 8;
/** Stored without compression, so that a truncated file has a truncated text. */
const pack = (text: string): Buffer => gzipSync(text, { level: 0 });

describe('a file that is compressed by gzip', () => {
  it('A compressed file that is truncated or damaged is refused, wherever its text ends', async () => {
    const packed = pack(csv);
    const lastRow = Buffer.byteLength(rows.at(-1) ?? '');
    const flipped = Buffer.from(packed);
    // One digit of the last row's time: still a row.
    flipped.writeUInt8(
      flipped.readUInt8(packed.length - footerBytes - lastRow) ^ 1,
      packed.length - footerBytes - lastRow,
    );
    const broken = {
      'footer.csv.gz': packed.subarray(0, -footerBytes),
      'row.csv.gz': packed.subarray(0, -footerBytes - lastRow),
      'cell.csv.gz': packed.subarray(0, -footerBytes - 2),
      'start.csv.gz': packed.subarray(0, 6),
      'flipped.csv.gz': flipped,
      'lines.ndjson.gz': pack(ndjson).subarray(0, -footerBytes),
      'member.csv.gz': Buffer.concat([packed, pack(rows.join('')).subarray(0, -footerBytes)]),
    };
    for (const [name, content] of Object.entries(broken))
      expect([name, await area.load(area.write(name, content))]).toMatchObject([
        name,
        { refused: { reason: 'bad_format', detail: expect.stringContaining('truncated or damaged') as string } },
      ]);
    expect(await area.rows('event_id')).toEqual([]);
  });

  it('A compressed file of several members is one file', async () => {
    const members = [header, ...rows].map((text) => gzipSync(text));
    expect(await area.load(area.write('members.csv.gz', Buffer.concat(members)))).toMatchObject({ stored: 20 });
  });
});

describe('a Parquet file', () => {
  it('A Parquet file that is truncated or damaged is refused as such', async () => {
    const file = area.write('whole.parquet', '');
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    await duckdb.run(
      `COPY (SELECT i AS "tsEvent", 1 AS "idApp", md5(i::VARCHAR) AS "eventId" FROM range(1000) AS t (i)) TO ${sqlText(file)} (FORMAT parquet)`,
    );
    duckdb.close();
    const whole = readFileSync(file);
    const damaged = {
      cut: whole.subarray(0, 500),
      head: Buffer.from(whole).fill(0, 4, 100),
      data: Buffer.from(whole).fill(255, 3000, 9000),
    };
    for (const [name, bytes] of Object.entries(damaged))
      expect([name, await area.load(area.write(name, bytes))]).toMatchObject([
        name,
        { refused: { reason: 'bad_format' } },
      ]);
    expect(await area.load(file)).toMatchObject({ stored: 1000 });
  });
});

const mib = 1024 * 1024;

/** Appends sparse NUL bytes to a file, and a text after them. */
function addNuls(file: string, bytes: number, text: string): string {
  truncateSync(file, bytes);
  const descriptor = openSync(file, 'a');
  writeSync(descriptor, text);
  closeSync(descriptor);
  return file;
}

describe('a file that the engine would read in part', () => {
  it.each([
    ['CSV', csv],
    ['JSON', ndjson],
  ])(
    'A file of %s that ends with NUL bytes, or has a line of any length beyond 16 MiB, is refused',
    async (_, text) => {
      const half = text.slice(0, -3);
      const nuls = area.write('nuls', half);
      expect(await area.load(addNuls(nuls, 300 * mib, ''))).toMatchObject({
        refused: { reason: 'bad_format', detail: expect.stringContaining('NUL') as string },
      });
      const long = addNuls(area.write('long', half), 257 * mib, `\n${rows[0]}`);
      expect(await area.load(long, { maxBad: 9 })).toMatchObject({ refused: { reason: 'bad_format' } });
      const packed = pack(`${text}${'x'.repeat(17 * mib)}\n`);
      expect(await area.load(area.write('long.gz', packed), { maxBad: 9 })).toMatchObject({
        refused: { reason: 'bad_format', detail: expect.stringMatching(/^line 2[12] is longer/) as string },
      });
      expect(await area.rows('event_id')).toEqual([]);
    },
  );

  it('A CSV record that is longer with its line breaks than the limit of a line is refused', async () => {
    const cell = `"${'a long line\n'.repeat(1.5 * mib)}"`;
    const text = `${csv}1700000000,1,${cell},1\n`;
    expect(await area.load(area.write('cell.csv', text), { maxBad: 9 })).toMatchObject({
      refused: { reason: 'bad_format', detail: expect.stringContaining('line 22 is longer') as string },
    });
  });

  it('A file without text is refused, unless empty files are allowed', async () => {
    for (const [name, content] of Object.entries({ zero: '', packed: gzipSync(''), blank: '\uFEFF \r\n\n' })) {
      const file = area.write(name, content);
      expect([name, await area.load(file)]).toMatchObject([name, { refused: { reason: 'empty_file' } }]);
      expect([name, await area.load(file, { allowsEmpty: true })]).toMatchObject([name, { rows: 0, bad: 0 }]);
      // Recognized by its content, and still not readable.
      expect([name, await area.load(file)]).toMatchObject([name, { refused: { reason: 'empty_file' } }]);
    }
    expect(await area.load(area.write('header.csv', header))).toMatchObject({ rows: 0 });
  });
});

describe('the dialects of files', () => {
  const three = [
    ['tsEvent', 'idApp', 'eventId', 'productId'],
    ['1700000001', '1', 'a', '"x,;""y"'],
    ['', '1', 'b', 'z'],
    ['1700000003', '1', 'c', '1,5'],
  ];
  const join = (delimiter: string, end = '\n') => three.map((cells) => cells.join(delimiter) + end).join('');

  it.each([
    ['semicolons', join(';'), 3],
    ['tabs', join('\t', '\r\n'), 3],
    ['bars', `\uFEFF${join('|')}`, 3],
    ['a first line that names semicolons', `\uFEFFsep=;\r\n${join(';', '\r\n')}`, 4],
  ])('Cells between %s are read, and bad rows named by their lines', async (_, text, badLine) => {
    const bad = [{ line: badLine, reason: 'missing', field: 'tsEvent' }];
    const file = area.write('dialect.csv', text);
    expect(await area.load(file)).toMatchObject({ refused: { reason: 'bad_rows' }, badRows: 1, bad });
    expect(await area.load(file, { maxBad: 1 })).toMatchObject({ stored: 2, bad: 1, first: bad });
    expect(await area.rows('product_id')).toEqual([{ product_id: 'x,;"y' }, { product_id: '1,5' }]);
  });

  it('The items of a JSON array are rows, with their amounts as they are, and bad ones are named by their position', async () => {
    const items = [
      '{"tsEvent":1700000001,\n "idApp":1,"eventId":"a\\n,b","total":"99999999999998.1234"}',
      '{"idApp":1}',
      '7',
    ];
    const file = area.write('items.json', ` [${items.join(',\r\n')}]\n`);
    const bad = [
      { line: 2, reason: 'missing', field: 'tsEvent' },
      { line: 3, reason: 'bad_json' },
    ];
    expect(await area.load(file)).toMatchObject({ badRows: 2, bad });
    expect(await area.load(file, { maxBad: 2 })).toMatchObject({ rows: 3, stored: 1, bad: 2 });
    expect(await area.rows('event_id, total::VARCHAR AS total')).toEqual([
      { event_id: 'a\n,b', total: '99999999999998.1234' },
    ]);
    const objects = Array.from(
      { length: 70_000 },
      (_, n) => `{"tsEvent":${n},"idApp":1,"eventId":"${'x'.repeat(240)}${n}"}`,
    );
    const packed = area.write('one-line.json.gz', gzipSync(`[${objects.join(',')}]`));
    expect(await area.load(packed)).toMatchObject({ stored: 70_000 });
    expect(await area.load(area.write('cut.json', '[{"tsEvent":1,"idApp":1},{"tsEvent"'))).toMatchObject({
      refused: { reason: 'bad_format', detail: expect.stringContaining('JSON array') as string },
    });
  });

  it.each([
    ['UTF-16', Buffer.from(`\uFEFF${csv}`, 'utf16le')],
    ['UTF-16', Buffer.from(`\uFEFF${csv}`, 'utf16le').swap16()],
    ['UTF-16', gzipSync(Buffer.from(ndjson, 'utf16le'))],
    ['Excel', Buffer.from('PK\u0003\u0004 workbook')],
    ['zstd', Buffer.from('28b52ffd00', 'hex')],
  ])('A file that is %s is refused by that name', async (name, content) => {
    expect(await area.load(area.write('other', content))).toMatchObject({
      refused: { reason: 'bad_format', detail: expect.stringContaining(name) as string },
    });
  });
});
