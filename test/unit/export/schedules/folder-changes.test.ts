import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { createFolderChanges } from '../../../../src/export/schedules/folder-changes.ts';
import { testFolder } from '../../../helpers/folder.ts';

test('Folders count as unchanged only after a look that came surely later than their last change', () => {
  const [folder, later] = ['here', 'later'].map((name) => path.join(testFolder(), name)) as [string, string];
  mkdirSync(folder);
  const clock = { now: 0 };
  const changes = createFolderChanges(() => clock.now);
  const look = (): boolean => {
    changes.note(folder);
    changes.note(later);
    return changes.haveChanged();
  };
  expect(look()).toBe(true);
  clock.now += 999;
  expect(look()).toBe(true);
  clock.now += 1;
  expect(look()).toBe(false);
  writeFileSync(path.join(folder, 'one'), '');
  expect(changes.haveChanged()).toBe(true);
  expect(look()).toBe(true);
  clock.now += 1000;
  expect(look()).toBe(false);
  mkdirSync(later);
  expect(changes.haveChanged()).toBe(true);
  look();
  clock.now += 1000;
  expect(look()).toBe(false);
  rmSync(later, { recursive: true });
  expect(changes.haveChanged()).toBe(true);
  changes.keep(new Set([folder]));
  expect(changes.haveChanged()).toBe(false);
});
