import { existsSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { openIdIndex, pairKeyOf, type IdIndex } from '../../../src/lake/find/id-index.ts';
import { findPairs, mergePairs, readAllPairs, writePairs, type PairColumns } from '../../../src/lake/files/id-pairs.ts';
import type { DataFile } from '../../../src/lake/log/snapshot.ts';
import type { Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { testFolder } from '../../helpers/folder.ts';

const startMs = Date.parse('2024-01-01T00:00:00Z');
const hourMs = 3_600_000;
/** What is not asked here. */
const noEngine = {} as Duckdb;

const receivedAtMs = (number: number): number => startMs + number * hourMs + 5;
const keyOf = (number: number): number => pairKeyOf(1, `key ${number}`);

const iso = (ms: number): string => new Date(ms).toISOString();

/** A data file of an hour, by what the log says of it. */
function dataFile(number: number, young = false): DataFile {
  return {
    path: `${number}.parquet`,
    absolutePath: `/${number}.parquet`,
    sizeBytes: 1000,
    numRecords: 10,
    minValues: { received_at: iso(startMs + number * hourMs) },
    maxValues: { received_at: iso(startMs + number * hourMs + hourMs - 1) },
    sha256: String(number).padStart(64, '0'),
    young,
  };
}

const high = (value: number): number => Math.floor(value / 2 ** 32);
const low = (value: number): number => value % 2 ** 32;

const pairs = (some: readonly (readonly [key: number, value: number])[]): PairColumns => {
  const sorted = some.toSorted(([a], [b]) => a - b);
  const column = (index: 0 | 1, part: (value: number) => number): Uint32Array =>
    Uint32Array.from(sorted, (pair) => part(pair[index]));
  return [column(0, high), column(0, low), column(1, high), column(1, low)];
};

interface TestIndex {
  readonly folder: string;
  readonly index: IdIndex;
  /** Says which of some files the index names for the key of a number, and which have no index. */
  readonly find: (files: readonly DataFile[], number: number) => Promise<unknown>;
  readonly names: (suffix: string) => string[];
}

async function packAll(index: IdIndex, files: readonly DataFile[]): Promise<void> {
  for await (const _ of index.pack(files));
}

async function indexFiles(files: readonly DataFile[]): Promise<TestIndex> {
  const folder = testFolder();
  for (const [at, { sha256 }] of files.entries())
    await writePairs(path.join(folder, `${sha256}.pairs`), [pairs([[keyOf(at), receivedAtMs(at)]])]);
  const index = openIdIndex(folder, noEngine);
  return {
    folder,
    index,
    async find(some, number) {
      const { candidates, missing } = await index.find(some, [keyOf(number)]);
      return [candidates.map(({ file, receivedAtMs: at }) => [file.path, ...at]), missing.map((file) => file.path)];
    },
    names: (suffix) => readdirSync(folder).filter((name) => name.endsWith(suffix)),
  };
}

describe('the index of ids', () => {
  it('An id is found for its own app, and leads to no file for another', () => {
    const id = '01234567-89ab-8cde-8f01-23456789abcd';
    expect(pairKeyOf(1, id)).toBe(pairKeyOf(1, id.slice(0, 24)));
    expect(pairKeyOf(2, id)).not.toBe(pairKeyOf(1, id));
    expect(pairKeyOf(1, `1${id.slice(1)}`)).not.toBe(pairKeyOf(1, id));
  });

  it('Hundreds of small files become a few that are read, and each id leads to its file as before', async () => {
    const files = [...Array(400).keys()].map((number) => dataFile(number, number % 3 === 0));
    const { index, find, names, folder } = await indexFiles(files);
    await packAll(index, files);
    expect(names('.pack')).toHaveLength(3);
    for (const number of [0, 1, 2, 255, 256, 399])
      expect(await find(files, number)).toEqual([[[`${number}.parquet`, receivedAtMs(number)]], []]);
    expect(await find(files, 400)).toEqual([[], []]);
    // Who opens it later has the packs too, and asks no file that is in one.
    for (const name of names('.pairs')) rmSync(path.join(folder, name));
    const answer = await openIdIndex(folder, noEngine).find(files, [keyOf(1)]);
    expect([answer.candidates.length, answer.missing.length]).toEqual([1, 400 - 3 * 128]);
    await packAll(index, files);
    expect(names('.pack')).toHaveLength(3);
  });

  it('A pack goes with the first of its files, and the others come into a new one', async () => {
    const files = [...Array(140).keys()].map((number) => dataFile(number));
    const { index, find, names } = await indexFiles(files);
    await packAll(index, files);
    const [first] = names('.pack');
    const left = files.slice(1);
    expect(await index.keepOnly(left)).toEqual([]);
    expect([names('.pack'), names('.list'), names('.pairs').length]).toEqual([[], [], 139]);
    expect(await find(left, 0)).toEqual([[], []]);
    await packAll(index, left);
    expect(names('.pack')).toHaveLength(1);
    expect(names('.pack')).not.toContain(first);
    expect(await index.keepOnly(left)).toEqual([]);
    expect(names('.pack')).toHaveLength(1);
    expect(await find(left, 139)).toEqual([[['139.parquet', receivedAtMs(139)]], []]);
  });

  it('A pack that is damaged, gone, or without its list is passed over, and what it was made of is asked', async () => {
    const files = [...Array(128).keys()].map((number) => dataFile(number));
    const { index, find, names, folder } = await indexFiles(files);
    const found = [[['7.parquet', receivedAtMs(7)]], []];
    for (const spoil of [
      (pack: string, _list: string) => truncateSync(pack, 100),
      (pack: string, _list: string) => rmSync(pack),
    ]) {
      await packAll(index, files);
      const [pack = '', list = ''] = [...names('.pack'), ...names('.list')].map((name) => path.join(folder, name));
      spoil(pack, list);
      expect(await find(files, 7)).toEqual(found);
      expect(existsSync(pack)).toBe(false);
    }
    await packAll(index, files);
    const [list = ''] = names('.list').map((name) => path.join(folder, name));
    writeFileSync(list, readFileSync(list, 'utf8').replace('0', '1'));
    const reopened = openIdIndex(folder, noEngine);
    expect((await reopened.find(files, [keyOf(7)])).candidates).toHaveLength(1);
    await reopened.keepOnly(files);
    expect([names('.pack'), names('.list')]).toEqual([[], []]);
  });

  it('A large file is in no pack, and is looked at once, however often the lake goes on', async () => {
    const files = [...Array(128).keys()].map((number) => dataFile(number));
    const { index, find, names, folder } = await indexFiles(files);
    const file = path.join(folder, `${files[0]?.sha256}.pairs`);
    const small = readFileSync(file);
    const many = [...Array(22_000).keys()].map((number) => [keyOf(0) + number, receivedAtMs(0)] as const);
    await writePairs(file, [pairs(many)]);
    await packAll(index, files);
    expect(names('.pack')).toEqual([]);
    expect(await find(files, 0)).toEqual([[['0.parquet', receivedAtMs(0)]], []]);
    writeFileSync(file, small);
    await packAll(index, files);
    expect(names('.pack')).toEqual([]);
    // What has gone meanwhile is looked at again.
    await index.keepOnly(files.slice(1));
    writeFileSync(file, small);
    await packAll(index, files);
    expect(names('.pack')).toHaveLength(1);
  });

  it('A damaged file is left out of packs, and is made anew', async () => {
    const files = [...Array(128).keys()].map((number) => dataFile(number));
    const { index, names, folder } = await indexFiles(files);
    const file = path.join(folder, `${files[3]?.sha256}.pairs`);
    const bytes = readFileSync(file);
    bytes.writeUInt8(bytes.readUInt8(2) ^ 1, 2);
    writeFileSync(file, bytes);
    await packAll(index, files);
    expect(names('.pack')).toEqual([]);
    expect(await index.keepOnly(files)).toEqual([files[3]]);
  });
});

describe('files of pairs', () => {
  it('Files that are put together have every pair of each, and each key is found', async () => {
    const all = [0, 1, 341, 1000].map((count, at) =>
      [...Array(count).keys()].map((number) => [(number * 7919 + at) * 65_537, number * 2 ** 20 + at] as const),
    );
    const folder = testFolder();
    const read: PairColumns[] = [];
    for (const [at, some] of all.entries()) {
      const file = path.join(folder, `${at}.pairs`);
      await writePairs(file, [pairs(some)]);
      read.push(await readAllPairs(file));
      expect(read.at(-1)).toEqual(pairs(some));
    }
    const merged = path.join(folder, 'merged.pack');
    await writePairs(merged, [mergePairs(read)]);
    expect((await readAllPairs(merged))[0]).toHaveLength(1342);
    for (const [key, value] of all.flat()) expect(await findPairs(merged, [key])).toContain(value);
    truncateSync(merged, 4096);
    await expect(readAllPairs(merged)).rejects.toMatchObject({ code: 'file_damaged' });
  });
});
