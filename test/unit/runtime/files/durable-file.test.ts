import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  ensureFolder,
  findTextFile,
  removeFile,
  writeFileDurably,
} from '../../../../src/runtime/files/durable-file.ts';
import { temporaryFolder } from '../../../helpers/folder.ts';

const root = temporaryFolder();

describe('durable files', () => {
  it('Durable files are replaced whole and leave no temporary behind', async () => {
    const file = path.join(root, 'whole.json');
    await Promise.all(Array.from({ length: 20 }, (_, index) => writeFileDurably(file, `${index}`.repeat(1000))));
    const text = readFileSync(file, 'utf8');
    expect(new Set(Array.from({ length: 20 }, (_, index) => `${index}`.repeat(1000))).has(text)).toBe(true);
    expect(readdirSync(root).filter((name) => name.startsWith('whole'))).toEqual(['whole.json']);
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  it('Durable files leave no temporary behind when the write fails', async () => {
    const folder = path.join(root, 'taken');
    await ensureFolder(path.join(folder, 'target'));
    await expect(writeFileDurably(path.join(folder, 'target'), 'x')).rejects.toThrow('EISDIR');
    expect(readdirSync(folder)).toEqual(['target']);
  });

  it('A durable file that does not exist is undefined, and may be removed twice', async () => {
    expect(await findTextFile(path.join(root, 'none'))).toBeUndefined();
    await removeFile(path.join(root, 'none'));
  });

  it('Durable files are in folders that only the owner can enter', async () => {
    const folder = path.join(root, 'a', 'b', 'c');
    await ensureFolder(folder);
    await ensureFolder(folder);
    expect(statSync(folder).mode & 0o777).toBe(0o700);
  });

  it.runIf(existsSync('/proc/self/fd'))('Durable files may be written where folders cannot be synced', async () => {
    await expect(ensureFolder('/proc/self/fd')).resolves.toBeUndefined();
  });
});
