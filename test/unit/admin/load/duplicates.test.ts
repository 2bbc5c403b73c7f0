import { createHash } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { writeDataFile, type WrittenPart } from '../../../../src/lake/files/data-file.ts';
import { readSnapshot } from '../../../../src/lake/log/snapshot.ts';
import { openDuckdb } from '../../../../src/lake/sql/duckdb.ts';
import { sqlList, sqlText } from '../../../../src/lake/sql/literals.ts';
import { removeErased, removeDuplicates } from '../../../../src/admin/load/commit-load.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { writeLake } from '../../../helpers/lake-fixture.ts';

/** The app and the identity of a row. */
type Row = readonly [idApp: number, eventId: string];

/** Stages files of these rows, with a function that finds their duplicates. */
async function stage(...parts: (readonly Row[])[]) {
  const folder = testFolder();
  const duckdb = await openDuckdb({ memoryMb: 128, threads: 1 });
  onTestFinished(() => duckdb.close());
  const staged: WrittenPart[] = [];
  for (const [part, rows] of parts.entries()) {
    const values = rows.map(([idApp, eventId]) => `(${idApp}::BIGINT, ${sqlText(eventId)})`);
    const file = path.join(folder, `${part}.parquet`);
    const query = `SELECT * FROM (VALUES ${values.join(', ')}) AS rows(id_app, event_id)`;
    staged.push({ file, ...(await writeDataFile(duckdb, query, file, 'young')) });
  }
  const makeRoom = async (): Promise<string> => {
    const room = path.join(folder, 'room');
    mkdirSync(room, { recursive: true });
    return room;
  };
  const read = async (left: readonly WrittenPart[]): Promise<string[]> => {
    if (left.length === 0) return [];
    const files = sqlList(left.map(({ file }) => file));
    const rows = await duckdb.rows(`SELECT id_app || ' ' || event_id AS row FROM read_parquet(${files}) ORDER BY ALL`);
    return rows.map(({ row }) => String(row));
  };
  return { duckdb, folder, staged, makeRoom, read };
}

/** Returns the files of a table with these rows. */
async function tableOf(rows: readonly Row[]) {
  const tableDir = path.join(testFolder(), 'installs');
  await writeLake(tableDir, [
    rows.map(([idApp, eventId]) => ({ event_id: eventId, id_app: idApp, event_time: 1, available_at: 1 })),
  ]);
  return (await readSnapshot(tableDir)).files;
}

test('Of rows of one identity the first stays, and another app may have the same identity', async () => {
  const { duckdb, staged, makeRoom, read } = await stage(
    [
      [1, 'a'],
      [1, 'a'],
      [2, 'a'],
      [1, 'b'],
    ],
    [
      [1, 'a'],
      [2, 'a'],
      [2, 'b'],
    ],
  );
  const left = await removeDuplicates(duckdb, staged, [], { own: true, makeRoom });
  expect(await read(left)).toEqual(['1 a', '1 b', '2 a', '2 b']);
});

test('Rows that the table has are removed, by app and identity, and files without others are dropped', async () => {
  const { duckdb, staged, makeRoom, read } = await stage(
    [
      [1, 'a'],
      [1, 'b'],
      [2, 'a'],
    ],
    [[1, 'a']],
    [[3, 'c']],
  );
  const files = await tableOf([
    [1, 'a'],
    [2, 'b'],
    [1, 'c'],
  ]);
  const left = await removeDuplicates(duckdb, staged, files, { own: false, makeRoom });
  expect(await read(left)).toEqual(['1 b', '2 a', '3 c']);
  // A file without duplicates is not rewritten.
  expect(left).toHaveLength(2);
  expect(left[1]).toBe(staged[2]);
});

test('Duplicates within a load are kept if the load does not compare its own rows', async () => {
  const { duckdb, staged, makeRoom, read } = await stage([
    [1, 'a'],
    [1, 'a'],
  ]);
  expect(await read(await removeDuplicates(duckdb, staged, [], { own: false, makeRoom }))).toEqual(['1 a', '1 a']);
});

test('Erased rows are removed, of the app that they were erased from', async () => {
  const { duckdb, folder, staged, makeRoom, read } = await stage([
    [1, 'a'],
    [2, 'a'],
    [1, 'b'],
  ]);
  const erased = path.join(folder, 'erased.parquet');
  const hash = createHash('sha256').update('1\na').digest('hex').slice(0, 16);
  await duckdb.run(`COPY (SELECT '0x${hash}'::UBIGINT AS h) TO ${sqlText(erased)} (FORMAT parquet)`);
  expect(await read(await removeErased(duckdb, staged, erased, makeRoom))).toEqual(['1 b', '2 a']);
});
