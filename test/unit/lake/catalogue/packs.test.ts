import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { catalogueForm } from '../../../../src/lake/catalogue/catalogue-files.ts';
import { openPacks } from '../../../../src/lake/catalogue/packs.ts';
import { openDuckdb, type Duckdb } from '../../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../../src/lake/sql/literals.ts';
import { AppError } from '../../../../src/runtime/errors.ts';
import { findNames } from '../../../../src/runtime/files/folder-names.ts';
import { testFolder } from '../../../helpers/folder.ts';

/** Creates a folder with a pack per key, in a form. */
async function packFolder(keys: Readonly<Record<string, string>>) {
  const duckdb = await openDuckdb({ memoryMb: 128, threads: 1 });
  onTestFinished(() => duckdb.close());
  const folder = testFolder();
  const fileOf = new Map<string, string>();
  for (const [key, form] of Object.entries(keys)) {
    const file = path.join(folder, `${randomUUID()}.${form}.parquet`);
    await duckdb.run(`COPY (SELECT ${sqlText(key)} AS key) TO ${sqlText(file)} (FORMAT parquet)`);
    fileOf.set(key, file);
  }
  return { duckdb, folder, fileOf };
}

const failForGood = async (): Promise<never> =>
  Promise.reject(new AppError('sql', 'duckdb: FATAL Error: database has been invalidated'));

/** Wraps an engine so that queries of files are interrupted. */
const stopped = (duckdb: Duckdb) => async (sql: string) => {
  if (!sql.includes('read_parquet')) return duckdb.rows(sql);
  throw new AppError('sql', 'duckdb: INTERRUPT Error: Interrupted!');
};

describe('openPacks()', () => {
  it('Parts of an earlier form are removed, and recreated later', async () => {
    const { duckdb, folder, fileOf } = await packFolder({ old: 'v2', new: catalogueForm });
    const packs = await openPacks(folder, duckdb);
    expect([...packs.keys()]).toEqual(['new']);
    expect(await findNames(folder)).toEqual([path.basename(fileOf.get('new') ?? '')]);
  });

  it('Only unreadable packs are removed', async () => {
    const { duckdb, folder, fileOf } = await packFolder({ good: catalogueForm, bad: catalogueForm });
    const packs = await openPacks(folder, duckdb);
    await writeFile(fileOf.get('bad') ?? '', 'no Parquet');
    expect(await packs.mend(duckdb)).toBe(true);
    expect([...packs.keys()]).toEqual(['good']);
    expect(await packs.mend(duckdb)).toBe(false);
  });

  it('An engine that has failed permanently, or is stopped, removes no pack', async () => {
    const { duckdb, folder } = await packFolder({ a: catalogueForm, b: catalogueForm });
    const packs = await openPacks(folder, duckdb);
    const failed: Duckdb = { ...duckdb, rows: failForGood };
    await expect(packs.mend(failed)).rejects.toThrow('invalidated');
    await expect(packs.mend({ ...duckdb, rows: stopped(duckdb) })).rejects.toThrow('Interrupted');
    expect(await findNames(folder)).toHaveLength(2);
    expect([...packs.keys()].toSorted()).toEqual(['a', 'b']);
  });

  it('An engine that failed permanently, or is stopped while packs are opened, removes none of them', async () => {
    const { duckdb, folder } = await packFolder({ a: catalogueForm, b: catalogueForm });
    await expect(openPacks(folder, { ...duckdb, rows: failForGood })).rejects.toThrow('invalidated');
    await expect(openPacks(folder, { ...duckdb, rows: stopped(duckdb) })).rejects.toThrow('Interrupted');
    expect(await findNames(folder)).toHaveLength(2);
  });

  it('A pack that cannot be read when packs are opened is removed', async () => {
    const { duckdb, folder, fileOf } = await packFolder({ good: catalogueForm, bad: catalogueForm });
    await writeFile(fileOf.get('bad') ?? '', 'no Parquet');
    expect([...(await openPacks(folder, duckdb)).keys()]).toEqual(['good']);
    expect(await findNames(folder)).toEqual([path.basename(fileOf.get('good') ?? '')]);
  });
});
