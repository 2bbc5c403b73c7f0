import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { openWorkFile } from '../../../../src/runtime/files/work-files.ts';
import { testFolder } from '../../../helpers/folder.ts';

test('A work file has what was appended, in its order, however many parts came at once', async () => {
  const file = path.join(testFolder(), 'work');
  const work = await openWorkFile(file);
  await work.append(Buffer.from('begin '));
  await work.appendAll([]);
  const parts = Array.from({ length: 2500 }, (_, index) => Buffer.from(index % 3 === 0 ? '' : `${index} `));
  await work.appendAll(parts);
  await work.append(Buffer.from('end'));
  await work.close();
  expect(readFileSync(file, 'utf8')).toBe(`begin ${parts.join('')}end`);
});
