import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { findIdsToRemove } from '../../../../src/cli/erase.ts';
import { removeIdsFromSegments } from '../../../../src/admin/lists/add-segment.ts';
import { findSegment } from '../../../../src/segments/segment-store.ts';
import { filesNaming } from '../../../helpers/folder-bytes.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { addTestSegment, listOptions } from '../../../helpers/lists.ts';

const idsOf = async (folder: string, idAccount: number, idSegment: number): Promise<number | undefined> =>
  (await findSegment(folder, { idAccount, idSegment }))?.ids;

it('Forgotten ids are removed from every segment of their kind, or of one account, and from leftovers of killed commands', async () => {
  const folder = path.join(testFolder(), 'lists');
  const ids = ['ann-the-erased', "o'hara", 'bea'];
  await addTestSegment(folder, { idAccount: 1, idSegment: 1, kind: 'custom' }, ids);
  await addTestSegment(folder, { idAccount: 1, idSegment: 2, kind: 'device' }, ids);
  await addTestSegment(folder, { idAccount: 1, idSegment: 3, kind: 'custom' }, ['bea']);
  await addTestSegment(folder, { idAccount: 2, idSegment: 1, kind: 'custom' }, ['ann-the-erased']);
  mkdirSync(path.join(folder, 'work', 'killed'));
  writeFileSync(path.join(folder, 'work', 'killed', 'ids.jsonl'), 'ann-the-erased');

  const untouched = await findSegment(folder, { idAccount: 1, idSegment: 3 });
  const forgotten = ['ann-the-erased', "o'hara", 'nobody'];
  expect(await removeIdsFromSegments(folder, { kind: 'custom', ids: forgotten, idAccount: 1 }, listOptions)).toBe(1);
  expect(await Promise.all([idsOf(folder, 1, 1), idsOf(folder, 1, 2), idsOf(folder, 2, 1)])).toEqual([1, 3, 1]);
  expect(existsSync(path.join(folder, 'work', 'killed'))).toBe(false);
  expect(await findSegment(folder, { idAccount: 1, idSegment: 3 })).toEqual(untouched);

  expect(await removeIdsFromSegments(folder, { kind: 'custom', ids: forgotten }, listOptions)).toBe(1);
  expect(await removeIdsFromSegments(folder, { kind: 'device', ids: forgotten }, listOptions)).toBe(1);
  expect(await Promise.all([idsOf(folder, 1, 2), idsOf(folder, 2, 1)])).toEqual([1, 0]);
  expect(filesNaming(folder, 'ann-the-erased')).toEqual([]);
});

it('A segment whose file is missing is named, and a folder without segments has nothing to forget', async () => {
  const folder = path.join(testFolder(), 'lists');
  expect(await removeIdsFromSegments(path.join(folder, 'none'), { kind: 'custom', ids: ['a'] }, listOptions)).toBe(0);
  await addTestSegment(folder, { idAccount: 1, idSegment: 7, kind: 'custom' }, ['a']);
  rmSync((await findSegment(folder, { idAccount: 1, idSegment: 7 }))?.absolutePath ?? '');
  await expect(removeIdsFromSegments(folder, { kind: 'custom', ids: ['a'] }, listOptions)).rejects.toMatchObject({
    code: 'file_damaged',
  });
});

it('An erasure of a user or a device removes ids from segments, and one of single events of a person does not', () => {
  const users = ['u'];
  const devices = ['d'];
  expect(findIdsToRemove({ users }, {})).toEqual({ kind: 'custom', ids: users });
  expect(findIdsToRemove({ users, userKind: 'custom', apps: [1, 2] }, { account: 4 })).toEqual({
    kind: 'custom',
    ids: users,
    idAccount: 4,
  });
  expect(findIdsToRemove({ devices }, {})).toEqual({ kind: 'device', ids: devices });
  for (const some of [{ users, devices }, { users, userKind: 'game' }, { apps: [1] }] as const)
    expect(findIdsToRemove(some, {})).toBeUndefined();
  expect(findIdsToRemove({ users, apps: [1] }, { app: 1 })).toBeUndefined();
});
