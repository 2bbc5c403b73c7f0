import { randomUUID } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { events } from '../../../src/datasets/dataset.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { listFailedHits } from '../../../src/admin/erase/erase-outside-tables.ts';
import { matchesFailedRow, targetParts, type ErasureTarget } from '../../../src/admin/erase/erase-target.ts';
import type { FailedEvent } from '../../../src/lake/files/failed-events.ts';
import { testFolder } from '../../helpers/folder.ts';

type Given = Pick<NonNullable<FailedEvent['load']>, 'map' | 'idApp'>;

function isErased(row: object | string, target: ErasureTarget, given: Given = {}): boolean {
  const line = typeof row === 'string' ? row : JSON.stringify(row);
  const load = { id: 'x', dataset: 'payments', line: 1, reason: 'bad_type', ...given };
  return matchesFailedRow({ reason: 'bad_value', failedAt: '', line, load }, load, targetParts(target));
}

const ann: ErasureTarget = { users: ['ann'] };

test('A bad row is erased by the ids of its fields in any form, and not by values of other fields', () => {
  expect(isErased({ customUserId: 'ann' }, ann)).toBe(true);
  expect(isErased({ customUserId: ' ann' }, ann)).toBe(true);
  expect(isErased({ customUserId: ['ann'] }, ann)).toBe(true);
  expect(isErased({ customUserId: 'anne', productId: 'ann', eventId: 'ann' }, ann)).toBe(false);
  expect(isErased({ customUserId: 'ann' }, { ...ann, userKind: 'platform' })).toBe(false);
  expect(isErased('{"customUserId":12345678901234567890}', { users: ['12345678901234567890'] })).toBe(true);
  expect(isErased('{"customUserId":12345678901234567891}', { users: ['12345678901234567890'] })).toBe(false);
});

test('A bad row is erased by a field that its load has renamed or dropped, and by one that no schema knows', () => {
  expect(isErased({ who: 'ann' }, ann, { map: { who: 'customUserId' } })).toBe(true);
  expect(isErased({ who: 'ann' }, ann, { map: { who: 'productId' } })).toBe(false);
  expect(isErased({ productId: 'ann' }, ann, { map: { productId: 'customUserId' } })).toBe(true);
  expect(isErased({ productId: 'ann' }, ann, { map: { productId: null } })).toBe(true);
  expect(isErased({ who: 'ann' }, ann)).toBe(true);
});

test('A bad row is erased with the app that it names, and a row without an app with a person only', () => {
  const apps: ErasureTarget = { apps: [2] };
  const both: ErasureTarget = { ...ann, ...apps };
  for (const target of [apps, both]) {
    expect(isErased({ customUserId: 'ann', idApp: '2' }, target)).toBe(true);
    expect(isErased({ customUserId: 'ann', idApp: 1 }, target)).toBe(false);
    expect(isErased({ customUserId: 'ann' }, target, { idApp: 2 })).toBe(true);
    expect(isErased({ customUserId: 'ann' }, target, { idApp: 1 })).toBe(false);
    expect(isErased({ customUserId: 'ann', app: 2 }, target, { map: { app: 'idApp' } })).toBe(true);
  }
  for (const unsaid of [{ customUserId: 'ann' }, { customUserId: 'ann', idApp: 'x', total: 2 }]) {
    expect(isErased(unsaid, both)).toBe(true);
    expect(isErased(unsaid, apps)).toBe(false);
  }
});

test('A line that is not a row is erased by an id anywhere in it, also as escaped by CSV or JSON', () => {
  expect(isErased('1,"an""n",x', { users: ['an"n'] })).toBe(true);
  expect(isErased(String.raw`{"customUserId":"an\"n`, { users: ['an"n'] })).toBe(true);
  expect(isErased('7,ann', { ...ann, apps: [2] })).toBe(true);
  expect(isErased('7,bob', ann)).toBe(false);
  expect(isErased('12,ann', { apps: [2] })).toBe(false);
  expect(isErased('2,ann', { apps: [2] })).toBe(true);
});

test('An erasure matches more failed events of one file than a call can have arguments', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { failed } = lakePaths(lakeDir);
  mkdirSync(failed, { recursive: true });
  const line = JSON.stringify({ id_app: 7 });
  const event = { reason: 'bad_value', failedAt: '2026-01-01T00:00:00.000Z', line } as const;
  const count = 200_000;
  writeFileSync(path.join(failed, `${randomUUID()}.ndjson`), `${JSON.stringify(event)}\n`.repeat(count));
  expect(await listFailedHits(lakeDir, events, { txns: new Map() }, { apps: [7] })).toHaveLength(count);
});
