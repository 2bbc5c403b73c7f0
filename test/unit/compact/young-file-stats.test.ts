import { mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { readPartitionGroups, allocateBytes, type YoungFileStats } from '../../../src/compact/seal/seal-policy.ts';
import { events } from '../../../src/datasets/dataset.ts';
import type { DataFile } from '../../../src/lake/log/snapshot.ts';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../src/lake/sql/literals.ts';
import { testFolder } from '../../helpers/folder.ts';

type Row = readonly [kind: string, date: string, availableAt: string];

async function writeYoung(duckdb: Duckdb, folder: string, name: string, rows: readonly Row[]): Promise<DataFile> {
  const absolutePath = path.join(folder, name);
  const values = rows.map((row) => `(${row.map(sqlText).join(', ')})`).join(', ');
  await duckdb.run(
    `COPY (SELECT k AS kind, d::DATE AS date, a::TIMESTAMPTZ AS available_at FROM (VALUES ${values}) AS t(k, d, a)) TO ${sqlText(absolutePath)} (FORMAT parquet)`,
  );
  return { path: name, absolutePath, sizeBytes: 1000 } as DataFile;
}

test('Rows of young files are added up by kind and date, and each file is read once', async () => {
  const folder = testFolder();
  mkdirSync(folder, { recursive: true });
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  const first = await writeYoung(duckdb, folder, 'a.parquet', [
    ['login', '2024-01-02', '2024-01-02T10:00:01Z'],
    ['login', '2024-01-01', '2024-01-02T10:00:01Z'],
    ['login', '2024-01-02', '2024-01-02T10:00:01Z'],
    ['custom_event', '2024-01-02', '2024-01-02T10:00:01Z'],
  ]);
  const known: YoungFileStats = new Map();
  await readPartitionGroups(events, duckdb, [first], known);
  // Removed: its known parts are not read again.
  rmSync(first.absolutePath);
  const second = await writeYoung(duckdb, folder, 'b.parquet', [['login', '2024-01-02', '2024-01-02T10:00:00Z']]);
  const partitionGroups = await readPartitionGroups(events, duckdb, [first, second], known);
  duckdb.close();
  const oldestMs = Date.parse('2024-01-02T10:00:00Z');
  const [a, b] = [first.absolutePath, second.absolutePath];
  expect(partitionGroups).toEqual([
    { partition: { kind: 'custom_event', date: '2024-01-02' }, rows: 1, oldestMs: oldestMs + 1000, files: [a] },
    { partition: { kind: 'login', date: '2024-01-01' }, rows: 1, oldestMs: oldestMs + 1000, files: [a] },
    { partition: { kind: 'login', date: '2024-01-02' }, rows: 3, oldestMs, files: [a, b] },
  ]);
  expect(new Map(allocateBytes(first, known))).toEqual(
    new Map([
      ['kind=login/date=2024-01-02', 500],
      ['kind=login/date=2024-01-01', 250],
      ['kind=custom_event/date=2024-01-02', 250],
    ]),
  );
  expect(allocateBytes({ ...first, absolutePath: 'elsewhere' }, known)).toEqual([]);
});
