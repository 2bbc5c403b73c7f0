import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { divideMemory } from '../../../src/compact/compact-options.ts';
import { createDueRows } from '../../../src/compact/seal/seal-policy.ts';
import { sealDueFiles } from '../../../src/compact/seal/seal.ts';
import { events } from '../../../src/datasets/dataset.ts';
import { toAdd, writeDataFile } from '../../../src/lake/files/data-file.ts';
import { lakePaths, openLake } from '../../../src/lake/lake.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';

beforeEach(oneTestIn(2));

const clock = createClock(0);
const today = new Date().toISOString().slice(0, 10);
const filesOfLake = 12;
const rowsOfFile = 4000;

/** Values of the rows of a young file; every other column is NULL. One row in four is a login. */
const values: Readonly<Record<string, string>> = {
  event_id: 'uuid()::VARCHAR',
  kind: "CASE WHEN n % 4 = 0 THEN 'login' ELSE 'custom_event' END",
  date: `DATE '${today}'`,
  id_app: 'n % 3',
  event_time: `TIMESTAMPTZ '${today}T00:00:00Z' + to_seconds(n)`,
  available_at: `TIMESTAMPTZ '${new Date().toISOString()}'`,
};

/** Parameters as of events of a browser game. */
const gameValues: Readonly<Record<string, string>> = {
  ...values,
  kind: "'custom_event'",
  custom_user_id: 'md5(n::VARCHAR)',
  lvid: 'md5(n::VARCHAR)',
  ipv4: "'207.180.123.0'",
  user_agent: "repeat('Mozilla/5.0 (X11) ', 6)",
  custom_event_params:
    "map_from_entries(list_transform(range(10), lambda i: {k: 'parameter_left_' || i, v: (hash(n + i) % 1000000000)::VARCHAR}))",
};

/** Creates a lake of young files: with rows of two kinds, unless other values are given. */
async function withYoungFiles(
  made: Readonly<Record<string, string>> = values,
  rowsOfEach = rowsOfFile,
  memoryMb = 512,
) {
  const lakeDir = path.join(testFolder(), 'lake');
  const table = await openLake(lakeDir, { clock, crashPoint: noCrashPoint, retentionMs: 86_400_000 });
  const duckdb = await openDuckdb({
    memoryMb,
    threads: 1,
    tempDir: path.join(lakeDir, '..', 'spill'),
    boundRowGroups: true,
  });
  onTestFinished(() => duckdb.close());
  const columns = events.columns.map(({ name, type }) => `(${made[name] ?? 'NULL'})::${type} AS ${name}`);
  for (let file = 0; file < filesOfLake; file += 1) {
    const relative = `_young/${randomUUID()}.parquet`;
    const query = `SELECT ${columns.join(', ')} FROM range(${rowsOfEach}) AS rows(n)`;
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
  while ((await sealDueFiles({ ...sealing, stagingDir }, options, new Map())) !== undefined) seals += 1;
  const { files, young } = table.snapshot();
  const sealed = files.filter((file) => !file.young);
  expect(seals).toBeGreaterThan(1);
  expect(sealed.filter((file) => file.sizeBytes > sealMaxBytes)).toEqual([]);
  // The minimum number of files: none is a remainder of another.
  expect(Math.max(...sealed.map((file) => file.sizeBytes))).toBeGreaterThan(sealMaxBytes / 2);
  expect(files.reduce((sum, file) => sum + (file.numRecords ?? 0), 0)).toBe(filesOfLake * rowsOfFile);
  expect(young.length === 0).toBe(sealAgeMs === 0);
});

test('Events of ten parameters become one sealed file with the default memory, since they are not wide', async () => {
  const memoryMb = divideMemory(2048).sealMb;
  const { lakeDir, table, duckdb } = await withYoungFiles(gameValues, 10_400, memoryMb);
  const options = { sealAgeMs: 0, sealMaxBytes: 128 * 1024 ** 2 };
  const dueRows = createDueRows(options);
  const sealing = { dataset: events, table, duckdb, clock, crashPoint: noCrashPoint, dueRows };
  await sealDueFiles({ ...sealing, stagingDir: lakePaths(lakeDir).staging }, options, new Map());
  expect(table.snapshot().files.map(({ numRecords, young }) => [numRecords, young])).toEqual([[12 * 10_400, false]]);
});
