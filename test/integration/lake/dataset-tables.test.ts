import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import type { Dataset } from '../../../src/datasets/dataset.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { openChange } from '../../../src/lake/files/change.ts';
import { readHistory, readLakeStats } from '../../../src/lake/history.ts';
import { ensureLake, lakePaths, tablePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { sealedPath } from '../../../src/lake/log/young-folder.ts';
import { repairLake } from '../../../src/lake/repair/repair-lake.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { snapshotSql } from '../../../src/lake/sql/snapshot-sql.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import type { Problem } from '../../../src/runtime/problems/problem.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { acquireLock } from '../../../src/runtime/files/lock.ts';
import { addRows, addWideRows, getDataset, type TestRow } from '../../helpers/dataset-rows.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, query, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

const payments = getDataset('payments');
const installs = getDataset('installs');
const day = Date.parse('2026-01-31T10:00:00Z') / 1000;

const row = (id: string, more: Partial<TestRow> = {}): TestRow => ({
  event_id: id,
  id_app: 1,
  event_time: day,
  custom_user_id: 'ann',
  ...more,
});

async function newLake(): Promise<string> {
  const lakeDir = path.join(testFolder(), 'lake');
  await ensureLake(lakeDir, { clock: createClock(0), retentionMs: 86_400_000 });
  return lakeDir;
}

async function compactOn(lakeDir: string, options: Parameters<typeof startTestCompact>[2] = {}) {
  const stream = createMemoryStream();
  const compactor = await startTestCompact(path.dirname(lakeDir), stream, options);
  onTestFinished(() => compactor.stop());
  return { stream, compact: compactor, problems: () => compactor.facts()['problems'] as Problem[] };
}

const filesOf = async (lakeDir: string, dataset: Dataset): Promise<string[]> =>
  (await readSnapshot(tablePaths(lakeDir, dataset).table)).files.map((file) => file.path);

const isSealed = async (lakeDir: string, dataset: Dataset): Promise<boolean> => {
  const { files } = await readSnapshot(tablePaths(lakeDir, dataset).table);
  return files.length > 0 && files.every((file) => file.publishedPath?.startsWith('date=') === true);
};

test('Young rows of a table are sealed into folders by its own columns, in its own order', async () => {
  const lakeDir = await newLake();
  await compactOn(lakeDir, { sealAgeMs: 50 });
  await addRows(lakeDir, payments, [
    row('b', { id_app: 2 }),
    row('a', { id_app: 1, event_time: day + 5 }),
    row('c', { event_time: day + 86_400 }),
  ]);
  await waitFor('payments are sealed', () => isSealed(lakeDir, payments), 30_000);
  const { files } = await readSnapshot(tablePaths(lakeDir, payments).table);
  expect(files.map((file) => path.posix.dirname(file.publishedPath ?? '')).toSorted()).toEqual([
    'date=2026-01-31',
    'date=2026-02-01',
  ]);
  const rows = await query(`SELECT event_id, id_country FROM read_parquet('${files[0]?.absolutePath}')`);
  expect(rows.map((one) => one['event_id'])).toEqual(['a', 'b']);
});

test('A table that cannot be sealed is reported, and the others are sealed', async () => {
  const lakeDir = await newLake();
  const damaged = await addRows(lakeDir, installs, [row('i')]);
  await addRows(lakeDir, payments, [row('p')]);
  const [file] = damaged.snapshot().files;
  writeFileSync(file?.absolutePath ?? '', 'no Parquet');
  const { stream, problems } = await compactOn(lakeDir, { sealAgeMs: 50 });
  stream.publish([eventLine()]);
  await waitFor('payments are sealed', () => isSealed(lakeDir, payments), 30_000);
  await waitFor('the file is named', () => problems().length > 0, 30_000);
  expect(problems()).toEqual([
    expect.objectContaining({
      code: 'seal_failed',
      subject: `installs/${file?.path}`,
      message: expect.stringContaining("a young file of the lake's table installs has not been sealed"),
    }),
  ]);
});

test(
  'Rows with more than a hundred columns are sealed in the smallest memory, with as many files as needed',
  { timeout: 180_000 },
  async () => {
    const lakeDir = await newLake();
    await addWideRows(lakeDir, payments, 30_000);
    const { problems } = await compactOn(lakeDir, { sealAgeMs: 50, duckdbMemoryMb: 256 });
    await waitFor('payments are sealed', () => isSealed(lakeDir, payments), 150_000);
    const { files } = await readSnapshot(tablePaths(lakeDir, payments).table);
    expect(files.length).toBeGreaterThan(1);
    expect(files.reduce((sum, file) => sum + (file.numRecords ?? 0), 0)).toBe(30_000);
    expect(problems()).toEqual([]);
  },
);

test('The start removes leftovers of a crash, completes an interrupted rewrite, and keeps the work of a lock holder', async () => {
  const lakeDir = await newLake();
  const table = await addRows(lakeDir, payments, [row('p')]);
  await addRows(lakeDir, installs, [row('i')]);
  const paths = tablePaths(lakeDir, payments);
  for (const name of ['unnamed.parquet', '.unnamed.parquet.1.tmp']) writeFileSync(path.join(paths.young, name), 'left');
  // A rewrite that ends right after its commit: its follow-ups remain.
  const [file] = table.snapshot().files;
  const add = table.state().files.get(file?.path ?? '');
  const open = await openChange(table, paths.staging, 'a rewrite', async (step) => {
    if (step === 'change-committed') throw new Error('crash');
  });
  const to = sealedPath('date=2026-01-01/renamed.parquet');
  const staged = path.join(open.folder, '0.parquet');
  copyFileSync(file?.absolutePath ?? '', staged);
  const change = {
    cause: 'seal',
    actions: [
      { add: { ...add, path: to } },
      { remove: { path: file?.path ?? '', deletionTimestamp: Date.now(), dataChange: false } },
    ],
  };
  await expect(open.commit([{ file: staged, path: to }], () => change as never)).rejects.toThrow('crash');
  await open.close();
  expect(readdirSync(paths.staging)).toEqual([open.id]);
  // A running load, in another table.
  const lock = acquireLock(tablePaths(lakeDir, installs).maintenanceLock, 'a load');
  onTestFinished(() => lock.release());
  const inHand = path.join(tablePaths(lakeDir, installs).staging, 'in-hand');
  mkdirSync(inHand);
  const young = path.join(tablePaths(lakeDir, installs).young, 'not-yet.parquet');
  writeFileSync(young, 'rows');

  const { stream, compact } = await compactOn(lakeDir);
  stream.publish([eventLine()]);
  await waitFor('the first event is stored', () => compact.facts()['stored'] === 1);
  await waitFor('the leftovers are removed', () => !readdirSync(paths.young).join().includes('unnamed'));
  expect(await filesOf(lakeDir, payments)).toEqual([to]);
  expect(readdirSync(paths.staging)).toEqual([]);
  expect(readdirSync(path.join(table.dir, 'date=2026-01-01'))).toEqual(['renamed.parquet']);
  expect(readdirSync(path.dirname(inHand))).toEqual(['in-hand']);
  expect(readdirSync(path.dirname(young))).toContain('not-yet.parquet');
});

test('Replaced files and old entries of the log of a table are removed after the retention, and it gets checkpoints', async () => {
  const lakeDir = await newLake();
  for (const id of ['a', 'b', 'c']) await addRows(lakeDir, payments, [row(id)]);
  await compactOn(lakeDir, { sealAgeMs: 50, retentionMs: 200, checkpointEvery: 2 });
  const { table, young } = tablePaths(lakeDir, payments);
  await waitFor('the young files are removed', () => readdirSync(young).length === 0, 30_000);
  await waitFor(
    'the log begins at a later checkpoint',
    () => !readdirSync(path.join(table, '_delta_log')).includes(`${'0'.repeat(20)}.json`),
    30_000,
  );
  expect(await query(`SELECT count(*)::INT AS n FROM read_parquet('${table}/date=*/*.parquet')`)).toEqual([{ n: 3 }]);
});

test('The file snapshot.sql has a view per existing table, and an older text keeps working without later ones', async () => {
  const lakeDir = await newLake();
  const { snapshotSql: file } = lakePaths(lakeDir);
  const read = () => readFileSync(file, 'utf8');
  expect(read()).not.toContain('payments');
  await addRows(lakeDir, payments, [row('p1'), row('p2')]);
  const older = read();
  await addRows(lakeDir, installs, [row('i')]);
  await addRows(lakeDir, payments, [row('p3')]);

  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const count = async (view: string) => (await duckdb.rows(`SELECT count(*)::INT AS n FROM ${view}`))[0]?.['n'];
  await duckdb.run('CREATE TABLE installs (mine INT)');
  await duckdb.run(older);
  expect([await count('events'), await count('payments'), await count('tributary.payments')]).toEqual([0, 3, 3]);
  await duckdb.run(read());
  expect([await count('payments'), await count('tributary.installs'), await count('installs')]).toEqual([3, 1, 0]);
  expect(await duckdb.rows('SELECT event_id, custom_user_id FROM tributary.installs')).toEqual([
    { event_id: 'i', custom_user_id: 'ann' },
  ]);
  const [variable] = await duckdb.rows(`SELECT getvariable('tributary_files_payments') IS NULL AS is_reset`);
  expect(variable).toEqual({ is_reset: true });
});

test('A printed text works on a lake that lacks one of its tables, whose view then has no rows', async () => {
  const lakeDir = await newLake();
  await addRows(lakeDir, payments, [row('p')]);
  await addRows(lakeDir, installs, [row('i')]);
  const text = snapshotSql({
    root: lakePaths(lakeDir).root,
    secondaryDatasets: [installs, payments],
    retentionMs: 86_400_000,
  });
  rmSync(tablePaths(lakeDir, installs).table, { recursive: true });
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  await duckdb.run(text);
  const counts = await duckdb.rows(
    'SELECT (SELECT count(*)::INT FROM events) AS e, (SELECT count(*)::INT FROM payments) AS p, (SELECT count(*)::INT FROM installs) AS i',
  );
  expect(counts).toEqual([{ e: 0, p: 1, i: 0 }]);
});

test('A check reports the problems of each table by path, and what it has read', async () => {
  const lakeDir = await newLake();
  const table = await addRows(lakeDir, payments, [row('p1'), row('p2')]);
  await addRows(lakeDir, installs, [row('i')]);
  const sound = await checkLake(lakeDir);
  expect(sound).toMatchObject({
    ok: true,
    rows: 0,
    tables: { payments: { rows: 2, files: 1 }, installs: { rows: 1, files: 1 } },
  });
  const [file] = table.snapshot().files;
  rmSync(file?.absolutePath ?? '');
  writeFileSync(path.join(tablePaths(lakeDir, installs).young, 'unnamed.parquet'), 'left');
  writeFileSync(path.join(lakePaths(lakeDir).root, 'installs', '_delta_log', `${'0'.repeat(19)}1.json`), '{}');
  const { problems } = await checkLake(lakeDir);
  expect(problems.map(({ problem, path: at }) => `${problem} ${at}`).toSorted()).toEqual(
    [`damaged_log_entry installs/_delta_log/${'0'.repeat(19)}1.json`, `missing_file payments/${file?.path}`].toSorted(),
  );
});

test('A foreign commit to a table is a problem with its name, stops no other table, and is reverted by a repair', async () => {
  const lakeDir = await newLake();
  const table = await addRows(lakeDir, payments, [row('p')]);
  await addRows(lakeDir, installs, [row('i')]);
  const [file] = table.snapshot().files;
  const log = path.join(tablePaths(lakeDir, payments).table, '_delta_log');
  const commit = [
    { commitInfo: { timestamp: Date.now(), operation: 'DELETE', engineInfo: 'another/1.0' } },
    { remove: { path: file?.path, deletionTimestamp: Date.now(), dataChange: true } },
  ];
  const name = `${String(table.state().version + 1).padStart(20, '0')}.json`;
  writeFileSync(path.join(log, name), commit.map((action) => `${JSON.stringify(action)}\n`).join(''));
  const { stream, compact, problems } = await compactOn(lakeDir, { sealAgeMs: 50 });
  stream.publish([eventLine()]);
  await waitFor('the event is stored', () => compact.facts()['stored'] === 1);
  await waitFor('installs are sealed', () => isSealed(lakeDir, installs), 30_000);
  await waitFor('the problem is named', () => problems().length > 0, 30_000);
  expect(problems()).toEqual([expect.objectContaining({ code: 'foreign_commit', subject: 'payments' })]);

  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const repaired = await repairLake({ lakeDir, duckdb, clock: createClock(0), crashPoint: noCrashPoint });
  expect(repaired).toMatchObject({ repaired: false, tables: { payments: { repaired: true, missing: [] } } });
  await waitFor('payments are sealed', () => isSealed(lakeDir, payments), 30_000);
  await waitFor('the problem is resolved', () => problems().length === 0, 30_000);
  expect((await checkLake(lakeDir)).problems).toEqual([]);
  expect((await readLakeStats(lakeDir)).tables).toMatchObject({ payments: { rows: 1 }, installs: { rows: 1 } });
  expect((await readHistory(lakeDir, 100, payments)).map(({ cause }) => cause)).toContain('repair');
});
