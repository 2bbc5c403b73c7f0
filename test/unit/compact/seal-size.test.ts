import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createDueRows } from '../../../src/compact/seal/seal-policy.ts';
import { sealDue } from '../../../src/compact/seal/seal.ts';
import { events } from '../../../src/datasets/dataset.ts';
import { toAdd, writeDataFile } from '../../../src/lake/files/data-file.ts';
import { lakePaths, openLake } from '../../../src/lake/lake.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { testFolder } from '../../helpers/folder.ts';

const clock = createClock(0);
const today = new Date().toISOString().slice(0, 10);
const filesOfLake = 12;
const rowsOfFile = 4000;

/** What the rows of a young file have; every other column is NULL. One row in four is a login. */
const values: Readonly<Record<string, string>> = {
  event_id: 'uuid()::VARCHAR',
  kind: "CASE WHEN n % 4 = 0 THEN 'login' ELSE 'custom_event' END",
  date: `DATE '${today}'`,
  id_app: 'n % 3',
  event_time: `TIMESTAMPTZ '${today}T00:00:00Z' + to_seconds(n)`,
  available_at: `TIMESTAMPTZ '${new Date().toISOString()}'`,
};

/** A lake of young files with rows of two kinds. */
async function withYoungFiles() {
  const lakeDir = path.join(testFolder(), 'lake');
  const table = await openLake(lakeDir, { clock, crashPoint: noCrashPoint, retentionMs: 86_400_000 });
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  onTestFinished(() => duckdb.close());
  const columns = events.columns.map(({ name, type }) => `(${values[name] ?? 'NULL'})::${type} AS ${name}`);
  for (let made = 0; made < filesOfLake; made += 1) {
    const relative = `_young/${randomUUID()}.parquet`;
    const query = `SELECT ${columns.join(', ')} FROM range(${rowsOfFile}) AS rows(n)`;
    const written = await writeDataFile(duckdb, query, path.join(table.dir, relative), 'young');
    await table.commit(() => ({ cause: 'flush', actions: [{ add: toAdd(relative, written, clock.nowMs(), true) }] }));
  }
  return { lakeDir, table, duckdb };
}

test.each([
  ['because much has come', 3_600_000],
  ['because they have waited long enough', 0],
])('No sealed file is larger than the setting, of rows that are due %s', async (_why, sealAgeMs) => {
  const { lakeDir, table, duckdb } = await withYoungFiles();
  const youngBytes = table.snapshot().young.reduce((sum, file) => sum + file.sizeBytes, 0);
  const sealMaxBytes = Math.round(youngBytes / 4);
  const options = { sealAgeMs, sealMaxBytes };
  const sealing = { dataset: events, table, duckdb, clock, crashPoint: noCrashPoint, dueRows: createDueRows(options) };
  const stagingDir = lakePaths(lakeDir).staging;
  let seals = 0;
  while ((await sealDue({ ...sealing, stagingDir }, options, new Map())) !== undefined) seals += 1;
  const { files, young } = table.snapshot();
  const sealed = files.filter((file) => !file.young);
  expect(seals).toBeGreaterThan(1);
  expect(sealed.filter((file) => file.sizeBytes > sealMaxBytes)).toEqual([]);
  // As few as can be: none is a leftover of another.
  expect(Math.max(...sealed.map((file) => file.sizeBytes))).toBeGreaterThan(sealMaxBytes / 2);
  expect(files.reduce((sum, file) => sum + (file.numRecords ?? 0), 0)).toBe(filesOfLake * rowsOfFile);
  expect(young.length === 0).toBe(sealAgeMs === 0);
});
