import path from 'node:path';
import { expect, it } from 'vitest';
import { datasets, events } from '../../../src/datasets/dataset.ts';
import { quarantinedDataset, quarantineKey } from '../../../src/lake/lake.ts';
import { matchSql } from '../../../src/admin/erase/erase-target.ts';

it('A target matches by the columns of a table, and matches nothing in a table without them', () => {
  const target = { users: ['ann'], apps: [7] };
  expect(matchSql(target, new Set(['custom_user_id', 'id_app']))).toBe(
    "(coalesce(custom_user_id IN ('ann'), false)) AND (coalesce(id_app IN (7::BIGINT), false))",
  );
  expect(matchSql(target, new Set(['id_app']))).toBe('(false) AND (coalesce(id_app IN (7::BIGINT), false))');
});

it('Every table has the columns by which users, devices and apps are found', () => {
  const target = { users: ['1'], devices: ['1'], apps: [1] };
  const all = new Set(events.columns.map(({ name }) => name));
  for (const { table, columns } of datasets.values())
    expect([table, matchSql(target, new Set(columns.map(({ name }) => name)))]).toEqual([table, matchSql(target, all)]);
});

it('The name of a quarantined file shows its table', () => {
  for (const dataset of datasets.values())
    expect(quarantinedDataset(path.basename(quarantineKey(dataset, '0b5e-1.parquet')))).toBe(dataset);
});
