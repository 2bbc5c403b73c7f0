import assert from 'node:assert/strict';
import path from 'node:path';
import { removeFile, syncFolder } from '../../runtime/files/durable-file.ts';
import { writeDataFile, type WrittenPart, assertFilesWhole } from '../../lake/files/data-file.ts';
import { isErasedSql } from '../../lake/find/erased-ids.ts';
import { pruneFiles } from '../../lake/files/prune.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlList } from '../../lake/sql/literals.ts';

/**
 * Rows that the table has already, by app and identity, that their own file has earlier, or that were erased, are not
 * added. Files that have such rows are written again without them, before the commit.
 */

/** So many files of the table are opened by one query. */
const filesPerLook = 64;
const repeatsTable = 'load_repeats';

const readFiles = (files: readonly string[], more = ''): string =>
  `read_parquet(${sqlList(files)}, hive_partitioning = false${more})`;

/** The staged rows with their places: `part` is the index of the file. */
function stagedSql(staged: readonly WrittenPart[]): string {
  return staged
    .map(
      ({ file }, part) =>
        `SELECT ${part} AS part, file_row_number AS row, id_app, event_id FROM ${readFiles([file], ', file_row_number = true')}`,
    )
    .join(' UNION ALL ');
}

/** Marks the rows whose identity stands earlier in their own file. Nearly always there is none, which hashes show. */
async function markTwice(duckdb: Duckdb, staged: readonly WrittenPart[]): Promise<void> {
  const all = readFiles(staged.map(({ file }) => file));
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE load_twice AS SELECT h FROM (SELECT hash(id_app, event_id) AS h FROM ${all}) GROUP BY h HAVING count(*) > 1`,
  );
  const [found] = await duckdb.rows('SELECT count(*) AS n FROM load_twice');
  if (Number(found?.['n']) === 0) return;
  await duckdb.run(
    `INSERT INTO ${repeatsTable} SELECT part, row FROM (
       SELECT part, row, row_number() OVER (PARTITION BY id_app, event_id ORDER BY part, row) AS nth
       FROM (${stagedSql(staged)}) WHERE hash(id_app, event_id) IN (SELECT h FROM load_twice)) WHERE nth > 1`,
  );
}

/** Marks the rows that files of the table have. */
async function markKnown(duckdb: Duckdb, staged: readonly WrittenPart[], files: readonly DataFile[]): Promise<void> {
  const apps = await duckdb.rows(`SELECT DISTINCT id_app FROM ${readFiles(staged.map(({ file }) => file))}`);
  const wanted = pruneFiles(files, { idApps: apps.map((row) => Number(row['id_app'])) });
  // An identity that a damaged file no longer shows would be added again.
  await assertFilesWhole(wanted);
  for (let from = 0; from < wanted.length; from += filesPerLook) {
    const some = wanted.slice(from, from + filesPerLook).map((file) => file.absolutePath);
    await duckdb.run(
      `INSERT INTO ${repeatsTable} SELECT part, row FROM (${stagedSql(staged)}) AS staged
       SEMI JOIN (SELECT id_app, event_id FROM ${readFiles(some)}) AS known USING (id_app, event_id)`,
    );
  }
}

/**
 * Takes the rows out of staged files that are repeats of what `files` have and, when `own` says so, of earlier ones of
 * their own. Returns the files that are left. Errors: `file_damaged`, `disk`, `memory`, `sql`.
 */
export async function takeOutRepeats(
  duckdb: Duckdb,
  staged: readonly WrittenPart[],
  files: readonly DataFile[],
  { own, makeRoom }: { readonly own: boolean; readonly makeRoom: () => Promise<string> },
): Promise<readonly WrittenPart[]> {
  if (staged.length === 0 || (files.length === 0 && !own)) return staged;
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${repeatsTable} (part INTEGER, row BIGINT)`);
  if (own) await markTwice(duckdb, staged);
  if (files.length > 0) await markKnown(duckdb, staged, files);
  return takeOutMarked(duckdb, staged, makeRoom);
}

/**
 * Takes the rows out of staged files that were erased, by the file of the hashes of their ids. Returns the files that are
 * left. Errors: `disk`, `memory`, `sql`.
 */
export async function takeOutErased(
  duckdb: Duckdb,
  staged: readonly WrittenPart[],
  erasedIds: string,
  makeRoom: () => Promise<string>,
): Promise<readonly WrittenPart[]> {
  if (staged.length === 0) return staged;
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE ${repeatsTable} AS SELECT part, row FROM (${stagedSql(staged)}) WHERE ${isErasedSql(erasedIds)}`,
  );
  return takeOutMarked(duckdb, staged, makeRoom);
}

/** Writes the files that have marked rows again without them. */
async function takeOutMarked(
  duckdb: Duckdb,
  staged: readonly WrittenPart[],
  makeRoom: () => Promise<string>,
): Promise<readonly WrittenPart[]> {
  const counted = await duckdb.rows(`SELECT part, count(DISTINCT row) AS n FROM ${repeatsTable} GROUP BY part`);
  if (counted.length === 0) return staged;
  const repeats = new Map(counted.map((row) => [Number(row['part']), Number(row['n'])]));
  const rewrite = (part: number): string =>
    `* EXCLUDE (file_row_number) FROM ${readFiles([staged[part]?.file ?? ''], ', file_row_number = true')}
     WHERE file_row_number NOT IN (SELECT row FROM ${repeatsTable} WHERE part = ${part})`;
  const left = await rewriteStaged(duckdb, staged, makeRoom, (one, part) => {
    const taken = repeats.get(part) ?? 0;
    if (taken === 0) return 'keep';
    return taken === one.numRecords ? 'drop' : `SELECT ${rewrite(part)}`;
  });
  const taken = [...repeats.values()].reduce((sum, n) => sum + n, 0);
  assert.equal(countRows(left), countRows(staged) - taken, 'each staged row is left or a repeat');
  return left;
}

/** How many rows files have. */
export function countRows(files: readonly WrittenPart[]): number {
  return files.reduce((sum, { numRecords }) => sum + numRecords, 0);
}

/** Gives all rows of staged files a later `available_at`, Unix milliseconds. */
export function restamp(
  duckdb: Duckdb,
  staged: readonly WrittenPart[],
  availableAtMs: number,
  makeRoom: () => Promise<string>,
): Promise<readonly WrittenPart[]> {
  return rewriteStaged(
    duckdb,
    staged,
    makeRoom,
    ({ file }) =>
      `SELECT * REPLACE (make_timestamptz(${availableAtMs} * 1000) AS available_at) FROM ${readFiles([file])}`,
  );
}

async function rewriteStaged(
  duckdb: Duckdb,
  staged: readonly WrittenPart[],
  makeRoom: () => Promise<string>,
  toQuery: (one: WrittenPart, part: number) => string,
): Promise<readonly WrittenPart[]> {
  const room = await makeRoom();
  const left: WrittenPart[] = [];
  for (const [part, one] of staged.entries()) {
    const query = toQuery(one, part);
    if (query === 'keep') {
      left.push(one);
      continue;
    }
    if (query !== 'drop') {
      const file = path.join(room, path.basename(one.file));
      left.push({ file, ...(await writeDataFile(duckdb, query, file, 'young')) });
    }
    await removeFile(one.file);
  }
  await syncFolder(room);
  return left;
}
