import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { mergeRows } from '../../../../src/lake/first-seen/part-rows.ts';
import { openDuckdb, type Duckdb } from '../../../../src/lake/sql/duckdb.ts';
import { temporaryFolder } from '../../../helpers/folder.ts';
import { query } from '../../../helpers/lake.ts';

const folder = temporaryFolder();
const pathOf = (name: string): string => path.join(folder, `${name}.parquet`);
let duckdb: Duckdb;

beforeAll(async () => {
  // The least memory of the compactor's maintenance, which must not spill.
  duckdb = await openDuckdb({ memoryMb: 64, threads: 1, boundRowGroups: true });
});
afterAll(() => duckdb.close());

/** Writes a part: 700,000 rows of apps 1 to 5, most of app 3, with times after `seconds`. */
async function writePart(name: string, firstKey: number, seconds: number): Promise<void> {
  await duckdb.run(
    `COPY (SELECT CASE WHEN i % 2 = 0 THEN 'device' ELSE 'user' END AS subject,
       (CASE WHEN i < 600000 THEN 3 ELSE 1 + i % 5 END)::INTEGER AS id_app,
       CAST(md5((i + ${firstKey})::VARCHAR) AS UUID) AS key, (${seconds} + i % 1000)::BIGINT AS first_seconds
     FROM range(700000) AS rows (i) ORDER BY subject, id_app) TO '${pathOf(name)}' (FORMAT parquet)`,
  );
}

async function merge(names: readonly string[], merged: string): Promise<number> {
  let pieces = 0;
  await mergeRows(duckdb, names.map(pathOf), pathOf(merged), () => pathOf(`${merged}-${(pieces += 1)}`));
  return pieces;
}

it('Merged parts have the first time of each subject, in the order of subject and app, with little memory', async () => {
  await writePart('newer', 0, 2_000_000);
  await writePart('older', 350_000, 1_000_000);
  const pieces = await merge(['newer', 'older'], 'merged');
  expect(pieces).toBeGreaterThan(3);
  const read = (name: string): string => `read_parquet('${pathOf(name)}')`;
  const [counts] = await query(
    `WITH merged AS (FROM ${read('merged')}),
     expected AS (SELECT subject, id_app, key, min(first_seconds) AS first_seconds
       FROM (FROM ${read('newer')} UNION ALL FROM ${read('older')}) GROUP BY ALL),
     places AS (SELECT (subject, id_app) AS place, lag((subject, id_app)) OVER (ORDER BY file_row_number) AS previous
       FROM read_parquet('${pathOf('merged')}', file_row_number = true))
     SELECT (SELECT count(*) FROM merged) AS rows, (SELECT count(*) FROM (FROM merged EXCEPT ALL FROM expected)) AS wrong,
       (SELECT count(*) FROM (FROM expected EXCEPT ALL FROM merged)) AS missing,
       (SELECT count(*) FROM places WHERE place < previous) AS unsorted`,
  );
  // Keys 350,000 to 600,000 are of app 3 in both parts, and a fifth of those up to 700,000.
  expect(counts).toEqual({ rows: 1_130_000n, wrong: 0n, missing: 0n, unsorted: 0n });
});

it('Parts without rows are merged into one without rows', async () => {
  for (const name of ['none', 'nothing'])
    await duckdb.run(`COPY (FROM read_parquet('${pathOf('newer')}') LIMIT 0) TO '${pathOf(name)}' (FORMAT parquet)`);
  expect(await merge(['none', 'nothing'], 'empty')).toBe(1);
  expect(await duckdb.rows(`SELECT count(*) AS rows FROM read_parquet('${pathOf('empty')}')`)).toEqual([{ rows: 0n }]);
});
