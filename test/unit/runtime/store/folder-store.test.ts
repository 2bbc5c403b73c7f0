import { existsSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { acquireLock } from '../../../../src/runtime/files/lock.ts';
import { createFolderStore } from '../../../../src/runtime/store/folder-store.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { describeObjectStore } from './object-store-suite.ts';

describeObjectStore(async () => {
  const folder = path.join(testFolder(), 'made');
  return [createFolderStore(folder), createFolderStore(folder)];
});

describe('in a folder that this process owns', () => {
  describeObjectStore(async () => {
    const store = createFolderStore(testFolder(), { isOwned: true });
    return [store, store];
  });
});

test('A store of an owned folder takes no lock, removes folders with their last object, and does not make its own again', async () => {
  const folder = testFolder();
  const lock = acquireLock(folder, 'a test');
  const store = createFolderStore(folder, { isOwned: true });
  await store.create('1/parts/a', Buffer.from('x'));
  await store.create('1/job', Buffer.from('x'));
  const tag = (await store.get('1/job'))?.tag ?? '#';
  expect(await store.replace('1/job', Buffer.from('y'), tag)).not.toBe('conflict');
  await store.remove(['1/parts/a', '2/parts/a']);
  expect(readdirSync(path.join(folder, '1'))).toEqual(['job']);
  await store.remove(['1/job']);
  expect(readdirSync(folder)).toEqual(['.lock']);
  lock.release();
  rmSync(folder, { recursive: true });
  await expect(store.create('1/job', Buffer.from('x'))).rejects.toMatchObject({ code: 'ENOENT' });
  expect(existsSync(folder)).toBe(false);
});

test('A symbolic link in a folder cannot be opened as an object', async () => {
  const folder = testFolder();
  writeFileSync(path.join(folder, 'object'), '');
  symlinkSync('object', path.join(folder, 'link'));
  expect(await createFolderStore(folder).open('link')).toBeUndefined();
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
  await store.sweep('keys/');
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
