import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { keyedEventIds } from '../../../src/datasets/event-id.ts';
import { indexKeyOf, openIdIndex, type IdIndex } from '../../../src/lake/event-index/id-index.ts';
import type { DataFile } from '../../../src/lake/log/snapshot.ts';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../src/lake/sql/literals.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import { testFolder } from '../../helpers/folder.ts';

const startMs = Date.parse('2024-01-01T00:00:00Z');
const receivedAtMs = (number: number): number => startMs + number * 3_600_000 + 5;

const idOf = (number: number): string =>
  keyedEventIds({ idApp: 1, key: `key ${number}`, method: 'customEvent', eventTexts: [] })(0);
const keyOf = (number: number): number => indexKeyOf(1, idOf(number));

async function openEngine(): Promise<Duckdb> {
  const duckdb = await openDuckdb({ memoryMb: 128, threads: 1 });
  onTestFinished(() => duckdb.close());
  return duckdb;
}

/** Writes numbered data files with one event per file, which has the same number. */
async function writeFiles(duckdb: Duckdb, count: number, young = false): Promise<DataFile[]> {
  const folder = testFolder();
  const files: DataFile[] = [];
  for (let number = 0; number < count; number += 1) {
    const absolutePath = path.join(folder, `${number}.parquet`);
    await duckdb.run(
      `COPY (SELECT ${sqlText(idOf(number))} AS event_id, 1::BIGINT AS id_app, make_timestamptz(${receivedAtMs(number)}000) AS received_at) TO ${sqlText(absolutePath)} (FORMAT parquet)`,
    );
    const sha256 = `${young ? 'f' : '0'}${String(number).padStart(31, '0')}`;
    const noValues = { minValues: {}, maxValues: {} };
    files.push({ path: `${number}.parquet`, absolutePath, sizeBytes: 1, numRecords: 1, ...noValues, sha256, young });
  }
  return files;
}

interface TestIndex {
  readonly duckdb: Duckdb;
  readonly folder: string;
  readonly index: IdIndex;
  readonly names: () => string[];
}

async function indexFiles(files: (duckdb: Duckdb) => Promise<DataFile[]>): Promise<TestIndex & { files: DataFile[] }> {
  const duckdb = await openEngine();
  const folder = testFolder();
  const index = openIdIndex(folder);
  const made = await files(duckdb);
  for (const file of made) await index.add(duckdb, file);
  return { duckdb, folder, index, names: () => readdirSync(folder), files: made };
}

/** Returns the files that an index finds for the key of a number, and how many are not indexed. */
async function find({ duckdb, index }: TestIndex, files: readonly DataFile[], number: number): Promise<unknown> {
  const { candidates, unindexed } = await index.find(duckdb, files, [keyOf(number)]);
  for (const { fromMs, toMs } of candidates)
    expect([fromMs <= receivedAtMs(number), toMs >= receivedAtMs(number)]).toEqual([true, true]);
  return [candidates.map(({ file }) => file.path), unindexed.length];
}

function raise(): never {
  throw new Error('there is no such file');
}

async function mergeAll({ duckdb, index }: TestIndex, files: readonly DataFile[]): Promise<void> {
  for (const merge of index.planMerges(files)) await index.merge(duckdb, merge);
}

describe('the index of ids', () => {
  it('An id is found for its own app, and in no file for another', () => {
    const id = '01234567-89ab-8cde-8f01-23456789abcd';
    expect(indexKeyOf(1, id)).toBe(indexKeyOf(1, id.slice(0, 24)));
    expect(indexKeyOf(2, id)).not.toBe(indexKeyOf(1, id));
    expect(indexKeyOf(1, `1${id.slice(1)}`)).not.toBe(indexKeyOf(1, id));
  });

  it('Many small files are merged into a few parts, and each id is still found in its file', async () => {
    const tested = await indexFiles(async (duckdb) => [
      ...(await writeFiles(duckdb, 34)),
      ...(await writeFiles(duckdb, 17, true)),
    ]);
    const { files, duckdb, names, folder } = tested;
    expect(names()).toHaveLength(51);
    await mergeAll(tested, files);
    // Young and sealed files have separate parts.
    expect(names()).toHaveLength(2);
    for (const number of [0, 16, 17, 33])
      expect(await find(tested, files.slice(0, 34), number)).toEqual([[`${number}.parquet`], 0]);
    expect(await find(tested, files, 34)).toEqual([[], 0]);
    const reopened = { ...tested, index: openIdIndex(folder) };
    expect(await find(reopened, files.slice(0, 34), 5)).toEqual([['5.parquet'], 0]);
    expect(await reopened.index.keepOnly(duckdb, files)).toEqual([]);
    expect(reopened.index.planMerges(files)).toEqual([]);
  });

  it('The next merge drops the rows of a removed file, and the other files stay indexed', async () => {
    const tested = await indexFiles((duckdb) => writeFiles(duckdb, 16));
    const { files, duckdb, index, names } = tested;
    await mergeAll(tested, files);
    const [before = ''] = names();
    const left = files.slice(1);
    expect(await index.keepOnly(duckdb, left)).toEqual([]);
    expect(await find(tested, left, 0)).toEqual([[], 0]);
    await mergeAll(tested, left);
    expect(names()).toHaveLength(1);
    expect(names()).not.toContain(before);
    expect(await find(tested, left, 15)).toEqual([['15.parquet'], 0]);
    expect(await find(tested, files, 0)).toEqual([[], 1]);
    expect(await index.keepOnly(duckdb, [])).toEqual(left.slice(0, 0));
    expect(names()).toEqual([]);
  });

  it('The files of a damaged or missing part count as not indexed', async () => {
    const tested = await indexFiles((duckdb) => writeFiles(duckdb, 3));
    const { files, duckdb, folder, names } = tested;
    const [first = '', second = ''] = names().map((name) => path.join(folder, name));
    const bytes = readFileSync(first);
    bytes.writeUInt8(bytes.readUInt8(5) ^ 1, 5);
    writeFileSync(first, bytes);
    rmSync(second);
    const reopened = { ...tested, index: openIdIndex(folder) };
    const { unindexed } = await reopened.index.find(duckdb, files, [keyOf(0)]);
    expect(unindexed).toHaveLength(2);
    expect(existsSync(first)).toBe(false);
    expect(await reopened.index.keepOnly(duckdb, files)).toHaveLength(2);
  });

  it('A part that is damaged while the index is in use counts as not indexed 10 minutes later', async () => {
    const tested = await indexFiles((duckdb) => writeFiles(duckdb, 1));
    const { files, folder, names } = tested;
    expect(await find(tested, files, 0)).toEqual([['0.parquet'], 0]);
    const file = path.join(folder, names()[0] ?? '');
    const bytes = readFileSync(file);
    // Only its key differs, so that reading it succeeds.
    const key = Buffer.alloc(8);
    key.writeBigInt64LE(BigInt(keyOf(0)));
    bytes.writeUInt8(bytes.readUInt8(bytes.indexOf(key)) ^ 1, bytes.indexOf(key));
    writeFileSync(file, bytes);
    const nowMs = performance.now();
    const now = vi.spyOn(performance, 'now').mockReturnValue(nowMs + 600_000);
    onTestFinished(() => now.mockRestore());
    expect(await find(tested, files, 0)).toEqual([[], 1]);
    expect(names()).toEqual([]);
  });

  it('A lookup ends while another process replaces the parts that it is about to read, again and again', async () => {
    const tested = await indexFiles((duckdb) => writeFiles(duckdb, 3));
    const { files, duckdb, folder, index } = tested;
    const other = openIdIndex(folder);
    const findWhile = async (replacements: number): Promise<unknown> => {
      let done = 0;
      const racing: Pick<Duckdb, 'rows' | 'run'> = {
        run: (sql) => duckdb.run(sql),
        async rows(sql) {
          if (sql.includes('min(span)') && done < replacements) {
            done += 1;
            await other.keepOnly(duckdb, []);
            await other.add(duckdb, files.at(done % files.length) ?? raise());
          }
          return await duckdb.rows(sql);
        },
      };
      const { candidates, unindexed } = await index.find(racing, files, [keyOf(2)]);
      return [done, candidates.map(({ file }) => file.path), unindexed.map((file) => file.path)];
    };
    expect(await findWhile(2)).toEqual([2, ['2.parquet'], ['0.parquet', '1.parquet']]);
    expect(await findWhile(9)).toEqual([4, [], ['0.parquet', '1.parquet', '2.parquet']]);
  });

  it('A part that another process removes while it is read counts as not indexed', async () => {
    const tested = await indexFiles((duckdb) => writeFiles(duckdb, 2));
    const { files, duckdb, folder } = tested;
    const racing: Pick<Duckdb, 'rows' | 'run'> = {
      run: (sql) => duckdb.run(sql),
      async rows(sql) {
        if (sql.includes('parquet_kv_metadata'))
          for (const name of readdirSync(folder)) rmSync(path.join(folder, name));
        return await duckdb.rows(sql);
      },
    };
    expect(await openIdIndex(folder).find(racing, files, [keyOf(0)])).toEqual({ candidates: [], unindexed: files });
  });

  it('An error of the engine does not cause the parts to be read again or removed', async () => {
    const tested = await indexFiles((duckdb) => writeFiles(duckdb, 2));
    const { files, duckdb, index, names } = tested;
    const fatal = 'duckdb: FATAL Error: database has been invalidated';
    for (const message of ['duckdb: INTERRUPT Error: Interrupted!', fatal]) {
      const asked: string[] = [];
      const rows = async (sql: string) => {
        asked.push(sql);
        if (message === fatal || sql.includes('read_parquet')) throw new AppError('sql', message);
        return duckdb.rows(sql);
      };
      await expect(index.find({ ...duckdb, rows }, files, [keyOf(0)])).rejects.toThrow(message);
      expect(asked.filter((sql) => sql.includes('parquet'))).toHaveLength(1);
    }
    expect(names()).toHaveLength(2);
  });

  it('Parts are listed again when another process has merged one', async () => {
    const tested = await indexFiles((duckdb) => writeFiles(duckdb, 16));
    const { files, folder, duckdb } = tested;
    const other = { ...tested, index: openIdIndex(folder) };
    expect(await other.index.keepOnly(duckdb, files)).toEqual([]);
    await mergeAll(other, files);
    expect(await find(tested, files, 7)).toEqual([['7.parquet'], 0]);
  });

  it('The index of version 0.3 is removed, and its files count as not indexed until they are', async () => {
    const duckdb = await openEngine();
    const folder = testFolder();
    const [file] = await writeFiles(duckdb, 1);
    if (file === undefined) throw new Error('there is a file');
    for (const name of [`${'a'.repeat(64)}.pairs`, `${'b'.repeat(64)}.pack`, `${'b'.repeat(64)}.list`])
      writeFileSync(path.join(folder, name), 'x');
    const index = openIdIndex(folder);
    expect(await index.find(duckdb, [file], [keyOf(0)])).toEqual({ candidates: [], unindexed: [file] });
    expect(await index.keepOnly(duckdb, [file])).toEqual([file]);
    expect(readdirSync(folder)).toEqual([]);
    await index.add(duckdb, file);
    expect((await index.find(duckdb, [file], [keyOf(0)])).candidates).toHaveLength(1);
  });
});
