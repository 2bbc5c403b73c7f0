import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { isSystemError } from '../../src/runtime/errors.ts';
import { openDuckdb, type Duckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlList, sqlText } from '../../src/lake/sql/literals.ts';

/**
 * Finds texts in a file, in its bytes and in its decompressed content. Reads the file once, and gives DuckDB a copy,
 * because the file may be replaced meanwhile. An incomplete file is searched as plain bytes.
 */
async function findInFile(duckdb: Duckdb, file: string, copy: string, texts: readonly string[]): Promise<string[]> {
  const bytes = readFileSync(file);
  const magic = Buffer.from('PAR1');
  const isParquet = bytes.subarray(0, 4).equals(magic) && bytes.length > 8 && bytes.subarray(-4).equals(magic);
  const isGzip = bytes.subarray(0, 2).equals(Buffer.from([0x1f, 0x8b]));
  const plain = isGzip ? gunzipSync(bytes) : bytes;
  if (isParquet) writeFileSync(copy, bytes);
  const rows = isParquet
    ? await duckdb.rows(
        `SELECT DISTINCT text FROM read_parquet(${sqlText(copy)}, hive_partitioning = false) AS t, unnest(${sqlList(texts)}) AS x(text) WHERE contains(t::VARCHAR, text)`,
      )
    : [];
  return [...texts.filter((text) => plain.includes(text)), ...rows.map((row) => String(row['text']))];
}

/**
 * Lists every file below a folder that has one of the texts, relative to it: plain, gzipped, or in a page of a Parquet
 * file.
 */
export async function findFilesWith(folder: string, ...texts: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  const scratch = mkdtempSync(path.join(tmpdir(), 'tributary-find-'));
  try {
    for (const [index, entry] of readdirSync(folder, { recursive: true, withFileTypes: true }).entries()) {
      if (!entry.isFile()) continue;
      const file = path.join(entry.parentPath, entry.name);
      const inFile = await findInFile(duckdb, file, path.join(scratch, `${index}.parquet`), texts).catch(
        (error: unknown) => {
          // Removed since it was listed.
          if (isSystemError(error, 'ENOENT')) return [];
          throw error;
        },
      );
      if (inFile.length > 0) found.push(path.relative(folder, file));
    }
  } finally {
    duckdb.close();
    rmSync(scratch, { recursive: true });
  }
  return found;
}
