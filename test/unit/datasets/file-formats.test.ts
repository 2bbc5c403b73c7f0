import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  compressions,
  contentTypeOf,
  describeUsualCompression,
  endingOf,
  findForm,
  formatNames,
  getFormat,
} from '../../../src/datasets/file-formats.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';

describe('formats of files', () => {
  it('The page docs/api.md has the declared row of each format', () => {
    const page = readFileSync(path.join(packageRoot, 'docs', 'api.md'), 'utf8');
    const rows = formatNames.map((name) => {
      const { title, about, endings } = getFormat(name);
      return `| \`${name}\` | ${title} | \`${endings[0]}\` | ${describeUsualCompression(name)} | ${about} |`;
    });
    expect(rows.filter((row) => !page.includes(row))).toEqual([]);
  });

  it('The form of a file is read from its name, in upper or lower case', () => {
    for (const format of formatNames)
      for (const compression of compressions) {
        const name = `customEvents.2026.1${endingOf({ format, compression })}`;
        const isSaid = getFormat(format).kind === 'text';
        const form = { format, compression: isSaid ? compression : 'none' };
        expect([findForm(name), findForm(name.toUpperCase())]).toEqual([form, form]);
      }
    expect(findForm('events.NDJSON.gz')).toEqual({ format: 'jsonl', compression: 'gzip' });
    expect(['events', 'events.gz', 'events.xls', 'csv'].map(findForm)).toEqual(Array(4).fill(undefined));
  });

  it('The media type of a file is that of its outermost form', () => {
    expect(['a.csv', 'a.jsonl', 'a.parquet', 'a.1.csv.gz', 'a.jsonl.zst', 'a.bin'].map(contentTypeOf)).toEqual([
      'text/csv; charset=utf-8',
      'application/jsonl; charset=utf-8',
      'application/vnd.apache.parquet',
      'application/gzip',
      'application/zstd',
      'application/octet-stream',
    ]);
  });
});
