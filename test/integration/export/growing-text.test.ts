import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Compression } from '../../../src/datasets/file-formats.ts';
import { chooseFormat } from '../../../src/export/worker/formats/format.ts';
import { startResultFiles, type ResultFiles } from '../../../src/export/worker/formats/result-files.ts';
import type { ReportFile } from '../../../src/reports/reports.ts';
import { testFolder } from '../../helpers/folder.ts';
import { formatRequest } from '../../helpers/format-request.ts';

interface Made {
  readonly files: ReportFile[];
  readonly bytes: Buffer[];
}

interface Limits {
  readonly singleFileMaxBytes: number;
  readonly partMaxBytes: number;
}

function start(
  folder: string,
  count: number,
  compression: Compression | undefined,
  limits: Limits,
): { readonly paths: [string, ...string[]]; readonly result: ResultFiles } {
  const pathOf = (index: number): string => path.join(folder, 'work', `${index}.csv`);
  mkdirSync(path.join(folder, 'work'));
  const paths: [string, ...string[]] = [pathOf(0)];
  for (let index = 1; index < count; index += 1) paths.push(pathOf(index));
  const options = { folder, stem: 'stem', limits, onProgress: () => undefined };
  return { paths, result: startResultFiles(paths, chooseFormat(formatRequest(compression)), options) };
}

/** Creates the result of a text that is written in pieces, each into a separate file, the later ones first. */
async function make(pieces: readonly string[], compression: Compression | undefined, limits: Limits): Promise<Made> {
  const folder = testFolder();
  const { paths, result } = start(folder, pieces.length, compression, limits);
  for (const [index, piece] of [...pieces.entries()].toReversed()) {
    writeFileSync(paths[index] ?? '', piece);
    result.complete(index);
  }
  const files = await result.finish({ rows: 7, bytes: Buffer.byteLength(pieces.join('')) });
  expect(readdirSync(folder).toSorted()).toEqual([...files.map(({ name }) => name), 'work'].toSorted());
  return { files, bytes: files.map(({ name }) => readFileSync(path.join(folder, name))) };
}

const cell = fc.oneof(fc.stringMatching(/^[a-z]{0,9}$/), fc.constantFrom('"x\ny"', '"a""b"', '"\n\n"', '","'));
const rows = fc.array(
  fc.tuple(cell, cell).map((cells) => `${cells.join(',')}\n`),
  { minLength: 1, maxLength: 60 },
);

describe('a result in several files', () => {
  it.each([
    ['compressed parts', 'gzip', { singleFileMaxBytes: 0, partMaxBytes: 200 }],
    ['plain parts, begun as one file', 'none', { singleFileMaxBytes: 0, partMaxBytes: 200 }],
    ['compressed parts, begun as one file', undefined, { singleFileMaxBytes: 90, partMaxBytes: 200 }],
    ['one plain file', undefined, { singleFileMaxBytes: 100_000, partMaxBytes: 200 }],
  ] as const)(
    'A text gives the same bytes for any files that it is written to: %s',
    async (_name, compression, limits) => {
      await fc.assert(
        fc.asyncProperty(rows, fc.array(fc.nat(60), { maxLength: 8 }), async (lines, cuts) => {
          const at = [0, ...cuts.filter((cut) => cut < lines.length).toSorted((a, b) => a - b), lines.length];
          const pieces = at.slice(1).map((end, index) => lines.slice(at[index], end).join(''));
          const whole = await make([lines.join('')], compression, limits);
          const inPieces = await make(pieces, compression, limits);
          expect(inPieces).toEqual(whole);
          const texts = inPieces.bytes.map((bytes, index) =>
            inPieces.files[index]?.name.endsWith('.gz') === true ? gunzipSync(bytes) : bytes,
          );
          const [header = ''] = lines;
          const withoutHeaders = texts.map((text) => text.toString('utf8').slice(header.length));
          expect(header + withoutHeaders.join('')).toBe(lines.join(''));
          for (const [index, bytes] of inPieces.bytes.entries())
            expect(inPieces.files[index]).toMatchObject({
              bytes: bytes.length,
              sha256: createHash('sha256').update(bytes).digest('hex'),
            });
        }),
        { numRuns: 60 },
      );
    },
  );

  it('Files that have been read are removed, and a writer can wait for the next one', async () => {
    const folder = testFolder();
    const { paths, result } = start(folder, 3, 'gzip', { singleFileMaxBytes: 0, partMaxBytes: 1000 });
    for (const file of paths) writeFileSync(file, 'a\n');
    result.complete(0);
    result.complete(1);
    await result.reached(2);
    expect(paths.map((file) => existsSync(file))).toEqual([true, false, true]);
    result.complete(2);
    expect(await result.finish({ rows: 2, bytes: 6 })).toMatchObject([{ rows: 2 }]);
  });

  it('A writer that waits for a file gets an error when the result is given up or cannot be made', async () => {
    const limits = { singleFileMaxBytes: 0, partMaxBytes: 1000 };
    const givenUp = start(testFolder(), 3, 'gzip', limits).result;
    const waiting = givenUp.reached(2);
    givenUp.giveUp();
    await expect(waiting).rejects.toThrow('given up');
    await givenUp.abandon();
    expect(givenUp.fault()).toBeUndefined();

    const folder = testFolder();
    writeFileSync(path.join(folder, 'stem.1.csv.gz'), 'in the way');
    const { paths, result } = start(folder, 3, 'gzip', limits);
    writeFileSync(paths[0], 'a\nb\n');
    result.complete(0);
    writeFileSync(paths[1] ?? '', 'c\n'.repeat(1_000_000));
    await expect(result.reached(2)).rejects.toThrow('given up');
    expect(result.fault()).toMatchObject({ code: 'EEXIST' });
    await result.abandon();
    expect(readFileSync(path.join(folder, 'stem.1.csv.gz'), 'utf8')).toBe('in the way');
  });
});
