import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { openFileRecords } from '../../../../src/runtime/store/file-records.ts';
import { isCount, shapeOf } from '../../../../src/runtime/store/shape.ts';
import { testFolder } from '../../../helpers/folder.ts';

interface Facts {
  readonly lines: number;
}

const write = (text: string): string => {
  const file = path.join(testFolder(), 'file');
  writeFileSync(file, text);
  return file;
};

function open() {
  const folder = path.join(testFolder(), 'lists');
  const damaged = { code: 'record_damaged', hint: 'Restore it.' } as const;
  const records = openFileRecords<Facts>(folder, { isValid: shapeOf<Facts>({ lines: isCount }), damaged }, true);
  const readCurrent = async (): Promise<string> =>
    readFileSync((await records.get('1/list'))?.absolutePath ?? '', 'utf8');
  const names = (): string[] => readdirSync(path.join(folder, '1')).toSorted();
  return { folder, records, readCurrent, names };
}

test('A change begins again with the newest file if another one is published meanwhile, and leaves one file', async () => {
  const { records, readCurrent, names } = open();
  expect(await records.publish('1/list', write('a'), { lines: 1 })).toBe(false);
  let runs = 0;
  await records.change('1/list', async (before) => {
    runs += 1;
    const text = readFileSync(before?.absolutePath ?? '', 'utf8');
    if (runs === 1) await records.publish('1/list', write('b'), { lines: 2 });
    return { file: write(`${text}c`), facts: { lines: 3 } };
  });
  expect([runs, await readCurrent(), (await records.get('1/list'))?.facts]).toEqual([2, 'bc', { lines: 3 }]);
  expect(names()).toHaveLength(2);
});

test('A first change begins again if another one has created the record, and one that returns nothing changes nothing', async () => {
  const { records, readCurrent, names } = open();
  let runs = 0;
  await records.change('1/list', async (before) => {
    runs += 1;
    if (runs === 1) await records.publish('1/list', write('a'), { lines: 1 });
    return { file: write(before === undefined ? 'new' : 'changed'), facts: { lines: 2 } };
  });
  await records.change('1/list', async () => undefined);
  expect([runs, await readCurrent(), names().length]).toEqual([2, 'changed', 2]);
});

test('A file is published over a damaged record, and a withdrawn record leaves no file', async () => {
  const { folder, records, readCurrent, names } = open();
  await records.publish('1/list', write('a'), { lines: 1 });
  writeFileSync(path.join(folder, '1/list.json'), 'damaged');
  expect(await records.publish('1/list', write('b'), { lines: 1 })).toBe(true);
  expect([await readCurrent(), names().length]).toEqual(['b', 2]);
  expect(await records.withdraw('1/list')).toBe(true);
  expect(names()).toEqual([]);
});
