import { describe, expect, it } from 'vitest';
import { findErrorCode, openDuckdb } from '../../../src/lake/sql/duckdb.ts';

describe('the code of an engine’s error', () => {
  it('A full disk and too little memory are distinguished from an invalid statement', async () => {
    const duckdb = await openDuckdb({ memoryMb: 32, threads: 1 });
    const codeOf = async (sql: string): Promise<unknown> =>
      duckdb.run(sql).then(
        () => 'none',
        (error: unknown) => (error as { code?: unknown }).code,
      );
    expect(await codeOf("COPY (SELECT range FROM range(10)) TO '/dev/full' (FORMAT parquet)")).toBe('disk');
    expect(await codeOf('SELECT list(range) FROM range(20000000)')).toBe('memory');
    expect(await codeOf("SELECT error('No space left on device')")).toBe('sql');
    expect(await codeOf("SELECT CAST('Out of Memory Error' AS INTEGER)")).toBe('sql');
    duckdb.close();
  });

  it.each([
    [
      'disk',
      "Out of Memory Error: failed to offload data.\nThis limit was set by the 'max_temp_directory_size' setting.",
    ],
    ['disk', 'IO Error: Could not write file "/data/x": Disk quota exceeded'],
    ['memory', 'std::bad_alloc'],
    [
      'sql',
      'Invalid Input Error: CSV Error on Line: 3\nOriginal Line: 2,"x"No space left on device\nValue with quote.',
    ],
    ['sql', 'IO Error: Could not read.\nOriginal Line: 2,No space left on device'],
    ['sql', 'Binder Error: no column\n\nLINE 1: SELECT max_temp_directory_size'],
  ])('An error is %s by its class and its text before any quotation, as in %j', (code, message) => {
    expect(findErrorCode(message)).toBe(code);
  });
});
