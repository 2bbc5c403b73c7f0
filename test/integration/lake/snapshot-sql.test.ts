import { cp, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { DuckDBInstance, type DuckDBConnection } from '@duckdb/node-api';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { lakeCommand } from '../../../src/cli/lake.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { ensureLake, lakePaths } from '../../../src/lake/lake.ts';
import { commitName, listLog, logFolder } from '../../../src/lake/log/log-files.ts';
import { findWrittenAt } from '../../../src/lake/sql/snapshot-sql.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { eventColumns } from '../../../src/datasets/event-fields.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

beforeEach(oneTestIn(3));

/** Opens a plain engine, like that of an analyst. */
async function openEngine(file = ':memory:', options: Record<string, string> = {}): Promise<DuckDBInstance> {
  const instance = await DuckDBInstance.create(file, {
    ...options,
    autoinstall_known_extensions: 'false',
    autoload_known_extensions: 'false',
  });
  onTestFinished(() => instance.closeSync());
  return instance;
}

const readSql = (lakeDir: string): Promise<string> => readFile(path.join(lakeDir, 'snapshot.sql'), 'utf8');

/** Runs a script as `.read` does, statement by statement. */
async function runScript(connection: DuckDBConnection, script: string): Promise<void> {
  const statements = await connection.extractStatements(script);
  for (let index = 0; index < statements.count; index += 1) await (await statements.prepare(index)).run();
}

async function rowsOf(connection: DuckDBConnection, sql: string): Promise<unknown[]> {
  return (await connection.runAndReadAll(sql)).getRowObjectsJson();
}

/** Returns the sorted ages of all rows of a view, which identify the rows of these tests. */
async function agesOf(connection: DuckDBConnection, view = 'events'): Promise<unknown> {
  return (await rowsOf(connection, `SELECT list(age ORDER BY age) AS ages FROM ${view}`)).map(
    (row) => (row as { ages: unknown }).ages,
  )[0];
}

/** Runs snapshot.sql as `.read` does, then a query, in a separate engine. */
async function readThroughSql(lakeDir: string, sql: string): Promise<unknown[]> {
  const connection = await (await openEngine()).connect();
  try {
    await runScript(connection, await readSql(lakeDir));
    return await rowsOf(connection, sql);
  } finally {
    connection.closeSync();
  }
}

/** Flushes events of these ages into the lake below a folder, an hour after the last time. */
async function addEvents(folder: string, stream: MemoryStream, ages: readonly number[], hour: number): Promise<string> {
  const lakeDir = path.join(folder, 'lake');
  const compactor = await startTestCompact(folder, stream, { clock: { nowMs: () => Date.now() + hour * 3_600_000 } });
  const before = (await readSnapshot(path.join(lakeDir, 'events'))).lake?.totals.stored ?? 0;
  const sql = await readSql(lakeDir);
  stream.publish(ages.map((age) => eventLine({ age })));
  await waitFor(
    'stored',
    async () => (await readSnapshot(path.join(lakeDir, 'events'))).lake?.totals.stored === before + ages.length,
  );
  await waitFor('snapshot.sql is renewed', async () => (await readSql(lakeDir)) !== sql);
  await compactor.stop();
  return lakeDir;
}

async function newLake(name = 'data'): Promise<{ folder: string; lakeDir: string; stream: MemoryStream }> {
  const folder = path.join(testFolder(), name);
  const stream = createMemoryStream();
  return { folder, stream, lakeDir: await addEvents(folder, stream, [1, 2], 0) };
}

test('A lake without events is read as empty views with every column', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  await ensureLake(lakeDir, { clock: createClock(0), retentionMs: 1000 });
  await ensureLake(lakeDir, { clock: createClock(0), retentionMs: 1000 });
  expect(await readThroughSql(lakeDir, 'SELECT count(*) AS n FROM events')).toEqual([{ n: '0' }]);
  expect(await readThroughSql(lakeDir, 'SELECT count(*) AS n FROM custom_event')).toEqual([{ n: '0' }]);
  const columns = (await readThroughSql(lakeDir, 'DESCRIBE events')) as { column_name: string; column_type: string }[];
  expect(columns.map((column) => column.column_name)).toEqual(eventColumns.map((column) => column.name));
  expect((await readSnapshot(path.join(lakeDir, 'events'))).version).toBe(0);
});

test('A commit that a listing lacks, before a listed one, is not skipped', async () => {
  const { folder, lakeDir, stream } = await newLake();
  await addEvents(folder, stream, [3], 1);
  const { table } = lakePaths(lakeDir);
  const { commits, checkpoints } = await listLog(table);
  const inBetween = commits.findLast(
    (version) => version > (checkpoints.at(-1) ?? 0) && version < (commits.at(-1) ?? 0),
  );
  const missing = commitName(inBetween ?? 0);
  await rm(path.join(logFolder(table), missing));
  await expect(readThroughSql(lakeDir, 'FROM events')).rejects.toThrow(missing);
});

test('The views have every committed row, young or sealed, and each kind has a view', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  stream.publish([eventLine(), eventLine({ kind: 'registration' })]);
  await waitFor(
    'sealed',
    async () => (await readSnapshot(path.join(lakeDir, 'events'))).files.filter((file) => !file.young).length === 2,
  );
  await compactor.stop();
  const last = await startTestCompact(folder, stream);
  stream.publish([eventLine({ kind: 'custom_event', custom_event_name: 'buy', custom_event_params: { a: 'b' } })]);
  await waitFor('flushed', async () => (await readSnapshot(path.join(lakeDir, 'events'))).files.length === 3);
  await last.stop();
  expect(
    await readThroughSql(lakeDir, 'SELECT kind, count(*)::INT AS n FROM events GROUP BY kind ORDER BY kind'),
  ).toEqual([
    { kind: 'custom_event', n: 1 },
    { kind: 'login', n: 1 },
    { kind: 'registration', n: 1 },
  ]);
  expect(await readThroughSql(lakeDir, "SELECT custom_event_params['a'] AS a FROM custom_event")).toEqual([{ a: 'b' }]);
});

test('The views work on every connection, also after the next run, and in a reopened database file', async () => {
  const { folder, lakeDir, stream } = await newLake();
  const file = path.join(folder, 'analysis.db');
  const instance = await DuckDBInstance.create(file);
  const [one, other] = [await instance.connect(), await instance.connect()];
  await runScript(one, await readSql(lakeDir));
  expect([
    await agesOf(one),
    await agesOf(other),
    await agesOf(other, 'tributary.events'),
    await agesOf(other, 'login'),
  ]).toEqual([
    [1, 2],
    [1, 2],
    [1, 2],
    [1, 2],
  ]);
  await addEvents(folder, stream, [3], 1);
  expect(await agesOf(other)).toEqual([1, 2]);
  await runScript(one, await readSql(lakeDir));
  expect(await agesOf(other)).toEqual([1, 2, 3]);
  expect(await rowsOf(one, "SELECT name FROM duckdb_variables() WHERE name <> 'tributary_accepted'")).toEqual([]);
  expect(await rowsOf(one, 'SELECT current_schema() AS s')).toEqual([{ s: 'main' }]);
  one.closeSync();
  other.closeSync();
  instance.closeSync();
  const again = await (await openEngine(file)).connect();
  expect([await agesOf(again), await agesOf(again, 'tributary.events'), await agesOf(again, 'registration')]).toEqual([
    [1, 2, 3],
    [1, 2, 3],
    null,
  ]);
  await runScript(again, await readSql(lakeDir));
  expect(await agesOf(again)).toEqual([1, 2, 3]);
});

test('Existing tables and views of the same names stay unchanged, and the lake is in the schema tributary', async () => {
  const { lakeDir } = await newLake();
  const connection = await (await openEngine()).connect();
  await connection.run('CREATE TABLE events AS SELECT 7 AS age; CREATE VIEW registration AS SELECT 8 AS age;');
  for (let run = 0; run < 2; run += 1) {
    await runScript(connection, await readSql(lakeDir));
    expect([await agesOf(connection), await agesOf(connection, 'registration')]).toEqual([[7], [8]]);
    expect([
      await agesOf(connection, 'tributary.events'),
      await agesOf(connection, 'tributary.registration'),
      await agesOf(connection, 'login'),
    ]).toEqual([[1, 2], null, [1, 2]]);
  }
});

test('A read-only database, or one with the name of the schema, gets the views too', async () => {
  const { folder, lakeDir } = await newLake();
  const file = path.join(folder, 'tributary.db');
  const writable = await DuckDBInstance.create(file);
  const writer = await writable.connect();
  await writer.run('CREATE TABLE login AS SELECT 7 AS age');
  await runScript(writer, await readSql(lakeDir));
  expect([await agesOf(writer), await agesOf(writer, 'tributary.tributary.login')]).toEqual([
    [1, 2],
    [1, 2],
  ]);
  await writer.run(
    'DROP SCHEMA tributary.tributary CASCADE; DROP VIEW events; DROP VIEW registration; DROP VIEW custom_event',
  );
  writer.closeSync();
  writable.closeSync();

  await rename(file, path.join(folder, 'my own.db'));
  const instance = await openEngine(path.join(folder, 'my own.db'), { access_mode: 'READ_ONLY' });
  const [one, other] = [await instance.connect(), await instance.connect()];
  for (let run = 0; run < 2; run += 1) {
    await runScript(one, await readSql(lakeDir));
    expect([await agesOf(one), await agesOf(one, 'tributary.events'), await agesOf(one, 'login')]).toEqual([
      [1, 2],
      [1, 2],
      [7],
    ]);
    expect(await agesOf(other, 'tributary_memory.events')).toEqual([1, 2]);
  }
});

test('The text in a copy of a lake never shows new rows of the original, and reads the copy if its path is set', async () => {
  const { folder, lakeDir, stream } = await newLake();
  const copy = `${folder} copy`;
  await cp(folder, copy, { recursive: true });
  await addEvents(folder, stream, [3], 1);
  const connection = await (await openEngine()).connect();
  const young = await readSql(path.join(copy, 'lake'));
  const writtenAt = findWrittenAt(young) ?? 0;
  const copied = young.replaceAll(String(writtenAt), String(writtenAt - 61_000));
  await expect(runScript(connection, copied)).rejects.toThrow(/not the newest text of .*SET VARIABLE tributary_root/);
  await expect(agesOf(connection)).rejects.toThrow('events');
  for (const root of [copy, path.join(copy, 'lake'), `${path.join(copy, 'lake')}/`]) {
    await connection.run(`SET VARIABLE tributary_root = '${root}'`);
    await runScript(connection, copied);
    expect(await agesOf(connection)).toEqual([1, 2]);
  }
  expect(await readThroughSql(lakeDir, 'SELECT max(age) AS age FROM events')).toEqual([{ age: 3 }]);

  // Every start rewrites the file of its folder.
  await ensureLake(path.join(copy, 'lake'), { clock: createClock(0), retentionMs: 86_400_000 });
  const ages = 'SELECT list(age ORDER BY age) AS ages FROM events';
  expect([await readThroughSql(path.join(copy, 'lake'), ages), await readThroughSql(lakeDir, ages)]).toEqual([
    [{ ages: [1, 2] }],
    [{ ages: [1, 2, 3] }],
  ]);
});

test('The text in a moved lake reports that the lake was moved, and a folder without a lake is reported', async () => {
  const { folder, lakeDir } = await newLake();
  const sql = await readSql(lakeDir);
  await rename(folder, `${folder} moved`);
  const connection = await (await openEngine()).connect();
  await expect(runScript(connection, sql)).rejects.toThrow(`no longer at ${lakeDir}`);
  await connection.run(`SET VARIABLE tributary_root = '${path.dirname(folder)}'`);
  await expect(runScript(connection, sql)).rejects.toThrow('No lake in');
  await connection.run(`SET VARIABLE tributary_root = '${folder} moved'`);
  await runScript(connection, sql);
  expect(await agesOf(connection)).toEqual([1, 2]);
});

test('A text keeps working on its connection while the lake changes', async () => {
  const { folder, lakeDir, stream } = await newLake();
  const connection = await (await openEngine()).connect();
  const sql = await readSql(lakeDir);
  await runScript(connection, sql);
  await addEvents(folder, stream, [3], 1);
  await runScript(connection, sql);
  expect(await agesOf(connection)).toEqual([1, 2, 3]);
});

test('Views that are older than the retention report it', async () => {
  const { lakeDir } = await newLake();
  const connection = await (await openEngine()).connect();
  await runScript(connection, await readSql(lakeDir));
  const age = async (ms: number): Promise<void> => {
    for (const schema of ['main', 'tributary']) {
      await connection.run(`SET VARIABLE files = (SELECT enum_range(NULL::${schema}.tributary_files))`);
      await connection.run(
        `CREATE OR REPLACE TYPE ${schema}.tributary_files AS ENUM (SELECT unnest([(getvariable('files')[1]::BIGINT - ${ms})::VARCHAR] || getvariable('files')[2:]))`,
      );
    }
  };
  await age(86_300_000);
  expect(await agesOf(connection)).toEqual([1, 2]);
  await age(100_000);
  for (const view of ['events', 'login', 'tributary.events'])
    await expect(agesOf(connection, view)).rejects.toThrow('for 24 hours only: run snapshot.sql again');
  await runScript(connection, await readSql(lakeDir));
  expect(await agesOf(connection)).toEqual([1, 2]);
});

test('A path with special characters of SQL and patterns matches only that path', async () => {
  const name = `a[1]*?{x,y} 'q' "d" ü$%`;
  const { folder, lakeDir, stream } = await newLake(name);
  expect(await readThroughSql(lakeDir, 'SELECT list(age ORDER BY age) AS ages FROM events')).toEqual([
    { ages: [1, 2] },
  ]);
  // Seals, checkpoints and a check use such a path too.
  const sealer = await startTestCompact(folder, stream, { sealAgeMs: 10, checkpointEvery: 2 });
  await waitFor('sealed', async () =>
    (await readSnapshot(path.join(lakeDir, 'events'))).files.every((file) => !file.young),
  );
  await sealer.stop();
  expect((await checkLake(lakeDir)).problems).toEqual([]);
  expect(await readThroughSql(lakeDir, 'SELECT list(age ORDER BY age) AS ages FROM events')).toEqual([
    { ages: [1, 2] },
  ]);
});

test("The command 'lake snapshot' prints a permanent text, for the lake of the data folder or for another root", async () => {
  const { folder, stream } = await newLake();
  const printed: string[] = [];
  const context = {
    environment: {},
    entry: '',
    printResult: () => undefined,
    print: (line: string) => void printed.push(line),
    printMessage: () => undefined,
    stop: new AbortController().signal,
    force: new AbortController().signal,
  };
  await runCommandHere(lakeCommand, ['snapshot', '--data', folder], context);
  await runCommandHere(lakeCommand, ['snapshot', '--data', folder, '--root', path.relative('.', folder)], context);
  await runCommandHere(lakeCommand, ['snapshot', '--data', folder, '--root', 's3://bucket/lake/'], context);
  await addEvents(folder, stream, [3], 1);
  for (const sql of printed.slice(0, 2)) {
    const connection = await (await openEngine()).connect();
    await runScript(connection, sql);
    expect(await agesOf(connection)).toEqual([1, 2, 3]);
  }
  expect(printed[2]).toContain("SET VARIABLE tributary_at = 's3://bucket/lake';");
  await expect(
    runCommandHere(lakeCommand, ['snapshot', '--data', path.join(folder, 'nothing')], context),
  ).rejects.toMatchObject({
    code: 'not_found',
  });
});
