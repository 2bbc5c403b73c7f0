import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { isSystemError } from '../../src/runtime/errors.ts';
import { openDuckdb, sqlList, sqlText, type Duckdb } from '../../src/lake/duckdb.ts';

/** Finds which of some texts stand in a file: in its bytes, or in what they are compressed from. */
async function findInFile(duckdb: Duckdb, file: string, texts: readonly string[]): Promise<string[]> {
  const bytes = readFileSync(file);
  const isParquet = bytes.subarray(0, 4).equals(Buffer.from('PAR1'));
  const isGzip = bytes.subarray(0, 2).equals(Buffer.from([0x1f, 0x8b]));
  const plain = isGzip ? gunzipSync(bytes) : bytes;
  const rows = isParquet
    ? await duckdb.rows(`SELECT DISTINCT text FROM read_parquet(${sqlText(file)}, hive_partitioning = false) AS t, unnest(${sqlList(texts)}) AS x(text) WHERE contains(t::VARCHAR, text)`)
    : [];
  return [...texts.filter((text) => plain.includes(text)), ...rows.map((row) => String(row['text']))];
}

/** Lists every file below a folder that has one of the texts, relative to it: plain, gzipped, or in a page of a Parquet file. */
export async function findFilesWith(folder: string, ...texts: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  try {
    for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const file = path.join(entry.parentPath, entry.name);
      const inFile = await findInFile(duckdb, file, texts).catch((error: unknown) => {
        // Removed since it was listed.
        if (isSystemError(error, 'ENOENT') || String(error).includes('No files found')) return [];
        throw error;
      });
      if (inFile.length > 0) found.push(path.relative(folder, file));
    }
  } finally {
    duckdb.close();
  }
  return found;
}
