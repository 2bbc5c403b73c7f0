import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { csvRows } from '../../../../../src/export/worker/formats/csv.ts';
import { keepSingleFile, writeParts } from '../../../../../src/export/worker/formats/text-parts.ts';
import { parseCsv } from '../../../../helpers/export-oracle.ts';
import { testFolder } from '../../../../helpers/folder.ts';

const quoteCell = (cell: string): string => (/[",\n\r]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
const toCsv = (rows: readonly (readonly string[])[]): string =>
  rows.map((row) => `${row.map(quoteCell).join(',')}\n`).join('');

async function split(
  folder: string,
  csv: string,
  partMaxBytes: number,
): Promise<{ texts: string[]; bytes: Buffer[]; rows: number[]; hashes: string[]; progress: number[] }> {
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, 'result.csv');
  writeFileSync(file, csv);
  const progress: number[] = [];
  const files = await writeParts(file, Buffer.byteLength(csv), csvRows, {
    isCompressed: true,
    folder,
    stem: 'stem',
    partMaxBytes,
    onProgress: (share) => void progress.push(share),
  });
  const bytes = files.map(({ name }) => readFileSync(path.join(folder, name)));
  expect(files.map((part) => part.bytes)).toEqual(bytes.map((part) => part.length));
  expect(files.map((part) => part.name)).toEqual(files.map((_, index) => `stem.${index + 1}.csv.gz`));
  return {
    texts: bytes.map((part) => gunzipSync(part).toString('utf8')),
    bytes,
    rows: files.map((part) => part.rows),
    hashes: files.map((part) => part.sha256),
    progress,
  };
}

describe('CSV parts', () => {
  it('CSV parts hold every row once, in order, each part with the header and within its bound, wherever quotes and breaks are', async () => {
    const folder = testFolder();
    let run = 0;
    const cells = fc.oneof(
      fc.constantFrom('', '"', '\n', '\r\n', ',', '"",\n"'),
      fc.string({ maxLength: 20, unit: fc.constantFrom('a', '"', '\n', ',', '\r', 'é', '🎮') }),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(cells, cells), { maxLength: 40 }),
        fc.integer({ min: 1, max: 200 }),
        async (rows, partMaxBytes) => {
          const header = ['first', 'second'];
          run += 1;
          const { texts, rows: counts } = await split(
            path.join(folder, String(run)),
            toCsv([header, ...rows]),
            partMaxBytes,
          );
          const parts = texts.map(parseCsv);
          for (const [index, part] of parts.entries()) {
            expect(part[0]).toEqual(header);
            expect(part.length - 1).toBe(counts[index]);
            expect(
              part.length === 2 || Buffer.byteLength(texts[index] ?? '') <= partMaxBytes || part.length === 1,
            ).toBe(true);
          }
          expect(parts.flatMap((part) => part.slice(1))).toEqual(rows);
        },
      ),
      { numRuns: 60, seed: 3 },
    );
  });

  it('CSV parts are the same bytes for the same CSV, with the hash of the downloaded bytes', async () => {
    const folder = testFolder();
    const csv = toCsv(Array.from({ length: 60_000 }, (_, index) => [`row ${index}`, `text "${index * 7919}"\nmore`]));
    const first = await split(path.join(folder, 'a'), csv, 1_000_000);
    const second = await split(path.join(folder, 'b'), csv, 1_000_000);
    expect(second.hashes).toEqual(first.hashes);
    expect(first.hashes).toEqual(first.bytes.map((part) => createHash('sha256').update(part).digest('hex')));
    expect(first.texts.length).toBeGreaterThan(2);
    expect(first.progress.toSorted((a, b) => a - b)).toEqual(first.progress);
    expect(first.progress.at(-1)).toBe(1);
  });

  it('CSV parts of a row larger than a block and than the bound are whole', async () => {
    const rows = [
      ['a', 'x'.repeat(3_000_000)],
      ['b', `"${'\n'.repeat(1_500_000)}`],
      ['c', ''],
    ];
    const { texts } = await split(testFolder(), toCsv([['k', 'v'], ...rows]), 1000);
    expect(texts.map((text) => parseCsv(text)[1])).toEqual(rows);
  });

  it('CSV parts of a header alone are one part without rows', async () => {
    const { texts, rows } = await split(testFolder(), 'a,b\n', 10);
    expect([texts, rows]).toEqual([['a,b\n'], [0]]);
  });

  it('CSV parts are refused for a CSV that ends inside a row', async () => {
    await expect(split(testFolder(), 'a,b\n"open', 10)).rejects.toThrow('ends inside a row');
  });

  it('An export without parts is one plain CSV file', async () => {
    const folder = testFolder();
    writeFileSync(path.join(folder, 'result.csv'), 'a\n1\n');
    const file = await keepSingleFile(path.join(folder, 'result.csv'), 1, folder, 'stem.csv');
    expect(file).toEqual({
      name: 'stem.csv',
      rows: 1,
      bytes: 4,
      sha256: createHash('sha256').update('a\n1\n').digest('hex'),
    });
  });
});

describe('the end of a row', () => {
  it.each([
    ['a\nb\n', 0, 2],
    ['a\nb\n', 2, 4],
    ['"a\n"\nb', 0, 5],
    ['"a""\n"\n', 0, 7],
    ['abc', 0, -1],
    ['"abc\n', 0, -1],
  ])('The end of a row of %j from %i is %i', (text, start, end) => {
    expect(csvRows.findRowEnd(Buffer.from(text), start)).toBe(end);
  });
});
