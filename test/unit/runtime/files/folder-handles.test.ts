import { mkdirSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { areSameFolders } from '../../../../src/runtime/files/folder-id.ts';
import { openFolderHandles } from '../../../../src/runtime/files/folder-watch.ts';
import { testFolder } from '../../../helpers/folder.ts';

describe('pinned folders', () => {
  it('Pinned folders are distinguished from those made in their place, however often one is removed and recreated', () => {
    const folder = path.join(testFolder(), 'one');
    mkdirSync(folder);
    const pins = openFolderHandles([folder]);
    for (let round = 0; round < 20; round += 1) {
      rmSync(folder, { recursive: true });
      expect(pins.findLost()).toEqual([folder]);
      // some file systems give the number of a removed folder to the next at once, unless it is held open
      mkdirSync(folder);
      expect(pins.findLost()).toEqual([folder]);
      expect(areSameFolders(pins.ids())).toBe(false);
    }
    pins.close();
  });

  it('Folders are pinned once they exist, but not in a folder that was lost', () => {
    const root = testFolder();
    const [outer, inner] = [path.join(root, 'outer'), path.join(root, 'outer', 'inner')];
    mkdirSync(outer);
    const pins = openFolderHandles([outer, inner]);
    renameSync(outer, `${outer}-away`);
    mkdirSync(inner, { recursive: true });
    pins.pin();
    expect(Object.keys(pins.ids())).toEqual([outer]);
    rmSync(outer, { recursive: true });
    renameSync(`${outer}-away`, outer);
    expect(pins.findLost()).toEqual([]);
    mkdirSync(inner);
    pins.pin();
    expect(Object.keys(pins.ids())).toEqual([outer, inner]);
    pins.close();
  });
});
