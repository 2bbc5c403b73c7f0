import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { findOldestPendingBase } from '../../../src/lake/files/failed-events.ts';
import { testFolder } from '../../helpers/folder.ts';

test('The oldest pending file is found among more failed files than a function call takes arguments', async () => {
  const folder = testFolder();
  const create = (name: string): void => writeFileSync(path.join(folder, name), '');
  for (let count = 0; count < 130_000; count += 1)
    create(`00000000-0000-0000-0000-${String(count).padStart(12, '0')}.ndjson`);
  expect(await findOldestPendingBase(folder)).toBe(Infinity);
  for (const base of [12, 9, 30]) create(`pending-${base}-${randomUUID()}.ndjson`);
  expect(await findOldestPendingBase(folder)).toBe(9);
});
