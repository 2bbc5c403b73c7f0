import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createDueRows } from '../../../src/compact/seal/seal-policy.ts';
import { sealDueFiles } from '../../../src/compact/seal/seal.ts';
import { events } from '../../../src/datasets/dataset.ts';
import { toAdd, writeDataFile } from '../../../src/lake/files/data-file.ts';
import { lakePaths, openLake } from '../../../src/lake/lake.ts';
import type { DataFile } from '../../../src/lake/log/snapshot.ts';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../../src/lake/sql/literals.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inWholeRun } from '../../helpers/in-turn.ts';

/*
 * Rows of more partitions than are scanned individually: they are sorted into work files first. The engine is that of
 * the compactor, with the least memory: each row counts as wide.
 */
const clock = createClock(0);
const dates = 20;
const youngFiles = 3;
const options = { sealAgeMs: 0, sealMaxBytes: 1e9 };
const columnList = events.columns.map(({ name }) => name).join(', ');

/** Values of row `n`; every other column is NULL. Rows of one partition are far apart. */
const values: Readonly<Record<string, string>> = {
  event_id: 'uuid()::VARCHAR',
  kind: "CASE WHEN n % 3 = 0 THEN 'login' ELSE 'custom_event' END",
  date: `DATE '2025-01-01' + (n % ${dates})::INT`,
  id_app: 'hash(n) % 5',
  event_time: "TIMESTAMPTZ '2025-01-01T00:00:00Z' + to_microseconds((hash(n, 1) % 86400000000)::BIGINT)",
  available_at: "TIMESTAMPTZ '2025-02-01T00:00:00Z'",
  user_agent: "repeat('x', 1000)",
  age: 'CASE WHEN n % 2 = 0 THEN n % 100 END',
  sezam_user_id: '9223372036854775807 - n',
  hwid: '18446744073709551615 - n',
  custom_event_name: "CASE n % 4 WHEN 0 THEN '' WHEN 1 THEN 'it''s \u{1F600}' END",
  custom_event_params:
    "CASE n % 4 WHEN 0 THEN MAP {} WHEN 1 THEN MAP {'a': n::VARCHAR, 'b': NULL} WHEN 2 THEN MAP {'': ''} END",
};

/** Creates a lake of young files with this many rows of every partition, and the dependencies of its seal. */
async function withYoungFiles(rowsOfFile: number) {
  const lakeDir = path.join(testFolder(), 'lake');
  const table = await openLake(lakeDir, { clock, crashPoint: noCrashPoint, retentionMs: 86_400_000 });
  const duckdb = await openDuckdb({
    memoryMb: 128,
    threads: 1,
    boundRowGroups: true,
    tempDir: path.join(lakeDir, '..', 'spill'),
  });
  onTestFinished(() => duckdb.close());
  const columns = events.columns.map(({ name, type }) => `(${values[name] ?? 'NULL'})::${type} AS ${name}`);
  for (let made = 0; made < youngFiles; made += 1) {
    const relative = `_young/${made}.parquet`;
    const query = `SELECT ${columns.join(', ')} FROM range(${made * rowsOfFile}, ${(made + 1) * rowsOfFile}) AS rows(n)`;
    const written = await writeDataFile(duckdb, query, path.join(table.dir, relative), 'young', { rows: 2048 });
    await table.commit(() => ({ cause: 'flush', actions: [{ add: toAdd(relative, written, clock.nowMs(), true) }] }));
  }
  const stagingDir = lakePaths(lakeDir).staging;
  return { dataset: events, table, duckdb, clock, dueRows: createDueRows(options), stagingDir };
}

function readSql(files: readonly DataFile[]): string {
  return `read_parquet(${sqlList(files.map(({ absolutePath }) => absolutePath))}, hive_partitioning = false, filename = true, file_row_number = true)`;
}

/** Calls a function before each statement that writes a file or a table. */
function watched(duckdb: Duckdb, before: (sql: string) => void): Duckdb {
  return {
    ...duckdb,
    async run(sql, bound) {
      before(sql);
      return duckdb.run(sql, bound);
    },
    async rows(sql, bound) {
      before(sql);
      return duckdb.rows(sql, bound);
    },
  };
}

test.for([
  ['one work file', 1000, 1],
  ['several work files', 20_000, 2],
] as const)(
  'Rows of many dates are sealed by way of %s, each with its value, in order, and none is left behind',
  async ([_how, rowsOfFile, workFiles], { skip }) => {
    if (workFiles > 1) inWholeRun(skip);
    const sealing = await withYoungFiles(rowsOfFile);
    const { table, duckdb } = sealing;
    const young = table.snapshot().young;
    let sorts = 0;
    const stagedFiles: string[] = [];
    const sealed = await sealDueFiles(
      {
        ...sealing,
        duckdb: watched(
          duckdb,
          (sql) => (sorts += sql.includes('/sorted/') && sql.includes('ORDER BY kind, date) TO') ? 1 : 0),
        ),
        async crashPoint(step) {
          if (step === 'change-written') stagedFiles.push(...(await readdir(sealing.stagingDir, { recursive: true })));
        },
      },
      options,
      new Map(),
    );
    const { files } = table.snapshot();
    expect(sorts).toBe(workFiles);
    expect(sealed).toMatchObject({ rows: youngFiles * rowsOfFile, remnantRows: 0, sealedFiles: 2 * dates });
    expect(stagedFiles.filter((name) => name.includes('sorted'))).toEqual([]);
    expect(stagedFiles.filter((name) => name.endsWith('.parquet'))).toHaveLength(2 * dates);
    expect(await readdir(sealing.stagingDir)).toEqual([]);
    for (const [one, other] of [
      [young, files],
      [files, young],
    ] as const)
      expect(
        await duckdb.rows(
          `SELECT ${columnList} FROM ${readSql(one)} EXCEPT ALL SELECT ${columnList} FROM ${readSql(other)} LIMIT 1`,
        ),
      ).toEqual([]);
    const strangers = await duckdb.rows(
      `SELECT filename FROM (SELECT filename, kind, date, (id_app, event_time) AS place, lag((id_app, event_time)) OVER (PARTITION BY filename ORDER BY file_row_number) AS previous FROM ${readSql(files)})
     WHERE place < previous OR NOT contains(filename, '/kind=' || kind || '/date=' || date::VARCHAR || '/') LIMIT 1`,
    );
    expect(strangers).toEqual([]);
  },
);

test('A seal of many dates that fails in the middle leaves no work file behind, and the rows young', async () => {
  const sealing = await withYoungFiles(1000);
  const before = sealing.table.snapshot();
  let writes = 0;
  let wereThere = false;
  const duckdb = watched(sealing.duckdb, (sql) => {
    const [, folder] = /TO '([^']+)\/\d+\.parquet' \(FORMAT/.exec(sql) ?? [];
    if (folder === undefined || path.basename(folder) === 'sorted' || (writes += 1) < dates) return;
    wereThere = existsSync(path.join(folder, 'sorted', '0.parquet'));
    throw new AppError('disk', 'No space left on device');
  });
  const sealed = sealDueFiles({ ...sealing, duckdb, crashPoint: noCrashPoint }, options, new Map());
  await expect(sealed).rejects.toThrow('No space left on device');
  expect(wereThere).toBe(true);
  expect(await readdir(sealing.stagingDir)).toEqual([]);
  await sealing.table.refresh();
  expect(sealing.table.snapshot().files).toEqual(before.files);
});
