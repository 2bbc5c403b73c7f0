import { statSync, writeFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { createFolderStore } from '../../../../src/runtime/store/folder-store.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { describeObjectStore } from './object-store-suite.ts';

describeObjectStore(async () => {
  const folder = path.join(testFolder(), 'made');
  return [createFolderStore(folder), createFolderStore(folder)];
});

test('Objects in a folder are private to their owner, and leftovers of killed writers are not objects and are removed', async () => {
  const folder = testFolder();
  const store = createFolderStore(folder);
  await store.create('keys/secret', Buffer.from('x'));
  await store.replace('keys/secret', Buffer.from('y'), 'any');
  expect(statSync(path.join(folder, 'keys/secret')).mode & 0o777).toBe(0o600);
  expect(statSync(path.join(folder, 'keys')).mode & 0o777).toBe(0o700);
  writeFileSync(path.join(folder, 'keys', 'other.123.tmp'), '');
  expect(await store.list('')).toEqual(['keys/secret']);
  expect(await store.listUnfinished('keys/')).toEqual(['keys/other.123.tmp']);
  await store.remove(await store.listUnfinished('keys/'));
  expect(readdirSync(path.join(folder, 'keys'))).toEqual(['secret']);
});

test('A store that only grows has the modes that it was given, takes no lock, and does not make its folder again', async () => {
  const folder = testFolder();
  const store = createFolderStore(folder, { mode: 0o640, folderMode: 0o750, isGrowing: true });
  const file = path.join(testFolder(), 'file');
  writeFileSync(file, '');
  await store.publish([{ key: 'a/file', file }]);
  await store.create('object', Buffer.from('x'));
  expect(
    [statSync(path.join(folder, 'a')).mode, statSync(path.join(folder, 'object')).mode].map((mode) => mode & 0o777),
  ).toEqual([0o750, 0o640]);
  await store.remove(['object']);
  expect(readdirSync(folder)).toEqual(['a']);
  const gone = createFolderStore(path.join(folder, 'gone'), { isGrowing: true });
  await expect(gone.create('object', Buffer.from('x'))).rejects.toMatchObject({ code: 'ENOENT' });
  await expect(gone.move('object', 'a/object')).rejects.toMatchObject({ code: 'ENOENT' });
  expect(readdirSync(folder)).toEqual(['a']);
});
