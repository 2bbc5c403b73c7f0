import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { testFolder } from '../helpers/folder.ts';

const program = path.resolve(import.meta.dirname, '../../dist/main.js');
const run = promisify(execFile);

test('No change of the access data is lost when several commands run at once', async () => {
  const dataDir = path.join(testFolder(), 'data');
  const names = Array.from({ length: 6 }, (_, index) => `u${index}`);
  const added = await Promise.all(
    names.map((name) => run(process.execPath, [program, 'user', 'add', name, '--account', '1', '--data', dataDir])),
  );
  const ids = added.map(({ stdout }) => (JSON.parse(stdout) as { idUser: string }).idUser);
  expect(new Set(ids).size).toBe(names.length);
  const { stdout } = await run(process.execPath, [program, 'user', 'list', '--data', dataDir]);
  const listed = stdout
    .trim()
    .split('\n')
    .map((line) => (JSON.parse(line) as { name: string }).name);
  expect(listed.toSorted()).toEqual(names);
});
