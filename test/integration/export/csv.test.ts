import { createHash } from 'node:crypto';
import { appendFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { chooseFormat } from '../../../src/export/worker/formats/format.ts';
import { fileFormats } from '../../../src/datasets/file-formats.ts';
import { startResultFiles } from '../../../src/export/worker/formats/result-files.ts';
import { parseCsv } from '../../helpers/export-oracle.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';
import { formatRequest } from '../../helpers/format-request.ts';

const quoteCell = (cell: string): string => (/[",\n\r]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
const toCsv = (rows: readonly (readonly string[])[]): string =>
  rows.map((row) => `${row.map(quoteCell).join(',')}\n`).join('');

interface Split {
  readonly texts: string[];
  readonly bytes: Buffer[];
  readonly rows: number[];
  readonly hashes: string[];
  readonly progress: number[];
}

/** Creates parts of a CSV that is written to its file in several pieces. */
async function split(folder: string, pieces: readonly Buffer[] | string, partMaxBytes: number): Promise<Split> {
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, 'result.csv');
  const written = typeof pieces === 'string' ? [Buffer.from(pieces)] : pieces;
  const progress: number[] = [];
  const result = startResultFiles([file], chooseFormat(formatRequest('gzip')), {
    folder,
    stem: 'stem',
    limits: { singleFileMaxBytes: 0, partMaxBytes },
    onProgress: (share) => void progress.push(share),
  });
  for (const piece of written) {
    appendFileSync(file, piece);
    await setImmediate();
  }
  const files = await result.finish({ rows: 0, bytes: Buffer.concat(written).length });
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

/** The parts of a CSV by the rule: byte by byte, in memory. */
function splitPlainly(csv: Buffer, partMaxBytes: number): string[] {
  const rows: Buffer[] = [];
  let [start, isQuoted] = [0, false];
  for (const [index, byte] of csv.entries()) {
    if (byte === 0x22) isQuoted = !isQuoted;
    if (byte !== 0x0a || isQuoted) continue;
    rows.push(csv.subarray(start, index + 1));
    start = index + 1;
  }
  const [header = Buffer.alloc(0), ...others] = rows;
  const parts = [[header]];
  for (const row of others) {
    const part = parts.at(-1) ?? [];
    const size = part.reduce((sum, { length }) => sum + length, row.length);
    if (part.length > 1 && size > partMaxBytes) parts.push([header, row]);
    else part.push(row);
  }
  return parts.map((part) => Buffer.concat(part).toString('utf8'));
}

describe('CSV parts', () => {
  it('CSV parts have every row once, in order, each part with the header and within its bound, for any quotes and line breaks', async () => {
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
          const parts = texts.map((part) => parseCsv(part));
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

  it('CSV parts equal those of the rule, byte for byte, for any pieces of the CSV', async () => {
    const folder = testFolder();
    const hostile = [
      '',
      '"',
      '""',
      '\n',
      '\r\n',
      ',',
      'é🎮',
      '\u0000',
      "'",
      '9223372036854775807',
      '-9223372036854775808',
    ];
    let run = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(fc.constantFrom(...hostile), { minLength: 2, maxLength: 4 }), { maxLength: 60 }),
        fc.integer({ min: 1, max: 300 }),
        fc.array(fc.integer({ min: 0, max: 2000 }), { maxLength: 5 }),
        async (cells, partMaxBytes, cuts) => {
          const csv = Buffer.from(toCsv([['first', 'second'], ...cells]));
          const places = [0, ...cuts.toSorted((a, b) => a - b), csv.length];
          const pieces = places.slice(1).map((place, index) => csv.subarray(places[index], place));
          run += 1;
          const { texts, hashes } = await split(path.join(folder, `${run}`), pieces, partMaxBytes);
          expect(texts).toEqual(splitPlainly(csv, partMaxBytes));
          expect(hashes).toEqual((await split(path.join(folder, `${run} at once`), [csv], partMaxBytes)).hashes);
        },
      ),
      { numRuns: 40, seed: 5 },
    );
  });

  it('CSV parts have the same bytes for the same CSV, with the hash of the downloaded bytes', async () => {
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

  it('CSV parts of a row larger than a block and than the bound are complete', async () => {
    const rows = [
      ['a', 'x'.repeat(3_000_000)],
      ['b', `"${'\n'.repeat(1_500_000)}`],
      ['c', ''],
    ];
    const { texts } = await split(testFolder(), toCsv([['k', 'v'], ...rows]), 1000);
    expect(texts.map((text) => parseCsv(text)[1])).toEqual(rows);
  });

  it('CSV parts of only a header are one part without rows', async () => {
    const { texts, rows } = await split(testFolder(), 'a,b\n', 10);
    expect([texts, rows]).toEqual([['a,b\n'], [0]]);
  });

  it('CSV parts are refused for a CSV that ends inside a row', async () => {
    await expect(split(testFolder(), 'a,b\n"open', 10)).rejects.toThrow('ends inside a row');
  });

  it('An export without parts is one plain CSV file', async () => {
    const folder = testFolder();
    const file = path.join(folder, 'result.csv');
    const result = startResultFiles([file], chooseFormat(formatRequest('none')), {
      folder,
      stem: 'stem',
      limits: { singleFileMaxBytes: 0, partMaxBytes: 4 },
      onProgress: () => undefined,
    });
    writeFileSync(file, 'a\n1\n');
    expect(await result.finish({ rows: 1, bytes: 4 })).toEqual([
      { name: 'stem.csv', rows: 1, bytes: 4, sha256: createHash('sha256').update('a\n1\n').digest('hex') },
    ]);
    expect(readdirSync(folder)).toEqual(['stem.csv']);
  });

  it('Files of a result that is given up are removed, completed parts too', async () => {
    const folder = testFolder();
    const file = path.join(folder, 'result.csv');
    const result = startResultFiles([file], chooseFormat(formatRequest('gzip')), {
      folder,
      stem: 'stem',
      limits: { singleFileMaxBytes: 0, partMaxBytes: 1_000_000 },
      onProgress: () => undefined,
    });
    writeFileSync(file, `a\n${'1234567\n'.repeat(1_000_000)}`);
    await waitFor('a third part', () => readdirSync(folder).includes('stem.3.csv.gz'));
    await result.abandon();
    expect(readdirSync(folder)).toEqual(['result.csv']);
  });

  it('Files that cannot be written report a fault before the result is complete', async () => {
    const folder = testFolder();
    const file = path.join(folder, 'result.csv');
    writeFileSync(path.join(folder, 'stem.1.csv.gz'), 'in the way');
    const result = startResultFiles([file], chooseFormat(formatRequest('gzip')), {
      folder,
      stem: 'stem',
      limits: { singleFileMaxBytes: 0, partMaxBytes: 1_000_000 },
      onProgress: () => undefined,
    });
    writeFileSync(file, `a\n${'1234567\n'.repeat(200_000)}`);
    await waitFor('the fault', () => result.fault() !== undefined);
    await result.abandon();
    expect(result.fault()).toMatchObject({ code: 'EEXIST' });
  });
});

describe('the ends of rows', () => {
  it.each([
    ['a\nb\n', [2, 4]],
    ['"a\n"\nb', [5]],
    ['"a""\n"\n', [7]],
    ['abc', []],
    ['"abc\n', []],
    ['"a\n","\n"\n"\n"\n', [9, 13]],
  ])('The ends of the rows of %j are %j', (text, ends) => {
    expect(fileFormats.csv.findRowEnds(Buffer.from(text))).toEqual(ends);
  });
});
