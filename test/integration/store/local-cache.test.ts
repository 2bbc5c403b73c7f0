import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { copyFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { openLocalCache } from '../../../src/runtime/store/local-cache.ts';
import { bundleChild } from '../../helpers/bundled.ts';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';

const built = temporaryFolder();
let program: string;
beforeAll(() => {
  program = bundleChild(built, 'cache-child');
});

test('A process removes the copy of a file that another process uses, which still reads it; a killed one leaves nothing', async () => {
  const [objects, folder] = [testFolder(), testFolder()];
  mkdirSync(path.join(objects, 'kind=a'));
  const files = ['kind=a/used', 'kind=a/other'].map((key) => {
    writeFileSync(path.join(objects, key), `bytes of ${key}`);
    return { absolutePath: key, sha256: createHash('sha256').update(`bytes of ${key}`).digest('hex') };
  });
  const [used, other] = files;
  const start = async () => {
    const child = spawn(process.execPath, [program, objects, folder, 'kind=a/used', used?.sha256 ?? '']);
    onTestFinished(() => void child.kill('SIGKILL'));
    expect(String((await once(child.stdout, 'data'))[0])).toBe('used\n');
    return child;
  };
  const children = [await start(), await start()];
  const cache = await openLocalCache({
    folder,
    maxBytes: 1,
    keyOf: ({ absolutePath }) => absolutePath,
    fetch: async (key, localFile) => {
      await copyFile(path.join(objects, key), localFile);
      return true;
    },
  });
  // The limit spares a copy that has links: only a process that looked just before it was linked removes it.
  const copy = path.join(folder, 'files', 'kind=a/used');
  await cache.use(other === undefined ? [] : [other], async () => undefined);
  expect(readFileSync(copy, 'utf8')).toBe('bytes of kind=a/used');
  rmSync(copy);
  await cache.use(used === undefined ? [] : [used], async ([file = '']) => {
    expect(readFileSync(file, 'utf8')).toBe('bytes of kind=a/used');
  });
  const [first, second] = children;
  first?.stdin.write('\n');
  expect(String((await once(first?.stdout ?? process.stdout, 'data'))[0])).toBe('bytes of kind=a/used');
  second?.kill('SIGKILL');
  await Promise.all(children.map(async (child) => child.exitCode ?? child.signalCode ?? (await once(child, 'exit'))));
  await cache.close();
  const next = await openLocalCache({ folder, maxBytes: 1, keyOf: () => '', fetch: async () => false });
  await next.close();
  expect(readdirSync(path.join(folder, 'uses')).filter((name) => !name.startsWith('.'))).toEqual([]);
});
