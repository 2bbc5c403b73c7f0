import { createHash } from 'node:crypto';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { copyFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openLocalCache, type LocalCache } from '../../../../src/runtime/store/local-cache.ts';
import type { StoredFile } from '../../../../src/runtime/store/open-store.ts';
import { testFolder } from '../../../helpers/folder.ts';

const fileBytes = 1000;

/** Objects in a folder, and caches of them on one other folder. */
function createObjects() {
  const [objects, folder] = [testFolder(), testFolder()];
  const fetched: string[] = [];
  return {
    folder,
    fetched,
    objects,
    add(key: string): StoredFile {
      const bytes = Buffer.from(key.padEnd(fileBytes, '.'));
      mkdirSync(path.dirname(path.join(objects, key)), { recursive: true });
      writeFileSync(path.join(objects, key), bytes);
      const sha256 = createHash('sha256').update(bytes).digest('hex');
      return { absolutePath: `s3://lake/${key}`, sizeBytes: fileBytes, sha256 };
    },
    async open(maxBytes: number): Promise<LocalCache> {
      const cache = await openLocalCache({
        folder,
        maxBytes,
        keyOf: ({ absolutePath }) => absolutePath.slice('s3://lake/'.length),
        async fetch(key, localFile) {
          fetched.push(key);
          if (!existsSync(path.join(objects, key))) return false;
          await copyFile(path.join(objects, key), localFile);
          return true;
        },
      });
      onTestFinished(() => cache.close());
      return cache;
    },
    copies: (): string[] =>
      readdirSync(path.join(folder, 'files'), { recursive: true, encoding: 'utf8' })
        .filter((name) => statSync(path.join(folder, 'files', name)).isFile())
        .toSorted(),
  };
}

const readAll = async (paths: readonly string[]): Promise<string[]> =>
  paths.map((file) => readFileSync(file, 'utf8').replaceAll('.', ''));

test('Files are fetched once, and used by paths that end with their keys, in their order', async () => {
  const objects = createObjects();
  const keys = ['kind=a/date=1/x', 'kind=b/date=1/x', 'kind=a/date=2/y'];
  const files = keys.map((key) => objects.add(key));
  const cache = await objects.open(10 * fileBytes);
  const uses = Array.from({ length: 10 }, () => cache.use(files, readAll));
  expect(await Promise.all(uses)).toEqual(uses.map(() => keys));
  await cache.use(files, async (paths) => {
    expect(paths.every((file, place) => file.endsWith(`/${keys[place]}`))).toBe(true);
  });
  expect(objects.fetched.toSorted()).toEqual(keys.toSorted());
});

test('The least recently used copies are removed first, and none in use, which may exceed the limit', async () => {
  const objects = createObjects();
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((key) => objects.add(key)) as [
    StoredFile,
    StoredFile,
    StoredFile,
    StoredFile,
  ];
  const cache = await objects.open(2 * fileBytes);
  for (const [file, second] of [
    [a, 1],
    [b, 2],
  ] as const) {
    await cache.use([file], readAll);
    const copy = path.join(objects.folder, 'files', file === a ? 'a' : 'b');
    utimesSync(copy, second, statSync(copy).mtimeMs / 1000);
  }
  await cache.use([a], readAll);
  await cache.use([c], readAll);
  expect(objects.copies()).toEqual(['a', 'c']);
  await cache.use([a, b, c, d], async (paths) => {
    expect(objects.copies()).toEqual(['a', 'b', 'c', 'd']);
    expect(await readAll(paths)).toEqual(['a', 'b', 'c', 'd']);
  });
  expect(objects.copies()).toHaveLength(2);
});

test('A copy that was cut or changed is replaced', async () => {
  const objects = createObjects();
  const file = objects.add('a');
  const cache = await objects.open(10 * fileBytes);
  const copy = path.join(objects.folder, 'files', 'a');
  for (const damage of [
    () => writeFileSync(copy, 'cut'),
    () => appendFileSync(copy, 'more'),
    () => writeFileSync(copy, 'b'.repeat(fileBytes)),
  ]) {
    await cache.use([file], readAll);
    damage();
    expect(await cache.use([file], readAll)).toEqual(['a']);
  }
  expect(objects.fetched).toHaveLength(4);
});

test('A copy that was verified is not read again, and one with another time is verified', async () => {
  const objects = createObjects();
  const file = objects.add('a');
  await (await objects.open(10 * fileBytes)).use([file], readAll);
  utimesSync(path.join(objects.folder, 'files', 'a'), 1, 1);
  expect(await (await objects.open(10 * fileBytes)).use([file], readAll)).toEqual(['a']);
  expect(objects.fetched).toEqual(['a']);
});

test('A missing object and one with other bytes are damaged files, and leave no copy', async () => {
  const objects = createObjects();
  const [missing, other] = [{ ...objects.add('a'), absolutePath: 's3://lake/missing' }, objects.add('b')];
  writeFileSync(path.join(objects.objects, 'b'), 'c'.repeat(fileBytes));
  const cache = await objects.open(10 * fileBytes);
  for (const file of [missing, other])
    await expect(cache.use([file], readAll)).rejects.toMatchObject({
      code: 'file_damaged',
      message: expect.stringContaining(file.absolutePath),
    });
  expect(objects.copies()).toEqual([]);
});

test('A file without a known hash is fetched for each use', async () => {
  const objects = createObjects();
  const { absolutePath } = objects.add('_log/1.parquet');
  const cache = await objects.open(10 * fileBytes);
  for (let n = 0; n < 2; n += 1) expect(await cache.use([{ absolutePath }], readAll)).toEqual(['_log/1parquet']);
  expect([objects.fetched.length, objects.copies()]).toEqual([2, []]);
});

test('Caches that share a folder with too little space remove copies of each other, and each use has its files', async () => {
  const objects = createObjects();
  const names = Array.from({ length: 12 }, (_, n) => `kind=a/file${n}`);
  const files = names.map((name) => objects.add(name));
  const caches = [await objects.open(3 * fileBytes), await objects.open(3 * fileBytes)];
  await Promise.all(
    caches.flatMap((cache, turn) =>
      Array.from({ length: 60 }, async (_, n) => {
        const places = [n + turn, n * 5 + turn, n * 7].map((place) => place % files.length);
        const some = places.flatMap((place) => files[place] ?? []);
        const read = await cache.use(some, async (paths) => {
          await new Promise((resolve) => setImmediate(resolve));
          return await readAll(paths);
        });
        expect(read).toEqual(places.map((place) => names[place]));
      }),
    ),
  );
  await (await objects.open(3 * fileBytes)).use([], readAll);
  expect(objects.copies().length).toBeLessThanOrEqual(3);
});
