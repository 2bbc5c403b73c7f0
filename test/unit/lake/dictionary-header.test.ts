import { statSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { readDictionaryHeaders } from '../../../src/lake/files/dictionary-header.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../src/lake/sql/literals.ts';
import { testFolder } from '../../helpers/folder.ts';

const order = (a: readonly number[], b: readonly number[]): number => a.join().localeCompare(b.join());

test("A dictionary's header says how many texts it has and how many bytes of theirs, in each row group", async () => {
  const file = path.join(testFolder(), 'texts.parquet');
  const duckdb = await openDuckdb({ memoryMb: 128, threads: 1 });
  onTestFinished(() => duckdb.close());
  await duckdb.run(
    `COPY (SELECT CASE WHEN i % 3 > 0 THEN repeat('Ж', (i % 40 + i // 2048)::INT) END AS t FROM range(6000) AS r(i))
     TO ${sqlText(file)} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 2048)`,
  );
  const chunks = await duckdb.rows(
    `SELECT dictionary_page_offset AS at FROM parquet_metadata(${sqlText(file)}) ORDER BY row_group_id`,
  );
  const known = await duckdb.rows(
    `SELECT count(DISTINCT t) AS n, sum(DISTINCT strlen(t)) AS bytes FROM read_parquet(${sqlText(file)}) GROUP BY file_row_number // 2048 ORDER BY ALL`,
  );
  const found = await readDictionaryHeaders(
    file,
    chunks.map(({ at }) => Number(at)),
  );
  expect(found.map((one) => [one?.values ?? 0, one?.textBytes ?? 0]).toSorted(order)).toEqual(
    known.map(({ n, bytes }) => [Number(n), Number(bytes)]).toSorted(order),
  );
  expect(found).toHaveLength(3);
});

test('Places where no dictionary begins have none, also at the end of the file', async () => {
  const file = path.join(testFolder(), 'texts.parquet');
  const duckdb = await openDuckdb({ memoryMb: 128, threads: 1 });
  onTestFinished(() => duckdb.close());
  await duckdb.run(
    `COPY (SELECT md5(i::VARCHAR) AS t FROM range(9000) AS r(i)) TO ${sqlText(file)} (FORMAT parquet, COMPRESSION zstd)`,
  );
  const size = statSync(file).size;
  const places = [...Array.from({ length: 300 }, (_, at) => at), size - 10, size, size + 1000];
  expect(new Set(await readDictionaryHeaders(file, places))).toEqual(new Set([undefined]));
});
