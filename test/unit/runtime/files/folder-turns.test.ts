import path from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { inFolderTurn } from '../../../../src/runtime/files/folder-turns.ts';
import { isLocked } from '../../../../src/runtime/files/lock.ts';
import { testFolder } from '../../../helpers/folder.ts';

test('Many changes of a folder that are asked for at once are all made, one at a time and in their order, under its lock', async () => {
  const folder = path.join(testFolder(), 'made');
  const made: number[] = [];
  const changes = Array.from({ length: 40 }, (_, n) =>
    inFolderTurn(folder, 'a test', async () => {
      const before = made.length;
      expect(isLocked(folder)).toBe(true);
      await turn();
      expect(made.length).toBe(before);
      made.push(n);
      if (n === 7) throw new Error('it failed');
    }),
  );
  const ended = await Promise.allSettled(changes);
  expect(ended.filter(({ status }) => status === 'rejected')).toMatchObject([{ reason: new Error('it failed') }]);
  expect(made).toEqual(Array.from({ length: 40 }, (_, n) => n));
  expect(isLocked(folder)).toBe(false);
});
