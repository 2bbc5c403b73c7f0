import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { checkpointEvery, checkpointWhenDue, trimLog, vacuum } from '../../../src/lake/cleanup.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { ensureLake, lakePaths, openLake } from '../../../src/lake/lake.ts';
import { assertHardLinks } from '../../../src/runtime/files/file-checks.ts';
import { listLog } from '../../../src/lake/log/log-files.ts';
import { tableProtocol } from '../../../src/lake/log/actions.ts';
import { pruneFiles } from '../../../src/lake/files/prune.ts';
import { catchUp, loadTableState, readSnapshot, type DataFile } from '../../../src/lake/log/snapshot.ts';
import { createTableState } from '../../../src/lake/log/table-state.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { eventColumns } from '../../../src/datasets/event-fields.ts';
import type { Column } from '../../../src/datasets/field-schema.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

const clock = createClock(0);
const options = { clock, crashPoint: noCrashPoint, retentionMs: 86_400_000 };

async function newLake(): Promise<{ lakeDir: string; table: string; log: string }> {
  const lakeDir = path.join(testFolder(), 'lake');
  await ensureLake(lakeDir, options);
  const { table } = lakePaths(lakeDir);
  return { lakeDir, table, log: path.join(table, '_delta_log') };
}

const addOf = (name: string) => ({
  add: { path: name, partitionValues: {}, size: 1, modificationTime: 0, dataChange: true },
});

test('A commit that a listing lacks is read if a later one was listed, and reported if it is missing', async () => {
  const { table, log } = await newLake();
  const opened = await openTable(table, options);
  for (let n = 0; n < 3; n += 1) await opened.commit(() => ({ cause: 'seal', actions: [addOf(`${n}.parquet`)] }));
  const state = createTableState();
  await catchUp(table, state, [0, 3]);
  expect([state.version, state.files.size]).toEqual([3, 3]);
  await rm(path.join(log, '00000000000000000002.json'));
  const damage = { code: 'log_damaged', message: 'the log lacks version 2' };
  await expect(catchUp(table, createTableState(), [0, 1, 3])).rejects.toMatchObject(damage);
  // A listed commit was trimmed meanwhile: the caller lists again.
  await expect(catchUp(table, createTableState(), [0, 1, 2, 3])).rejects.toMatchObject({ code: 'ENOENT' });
});

test('Writers that commit at once all succeed, one after the other, each with its own version', async () => {
  const { table } = await newLake();
  const writers = await Promise.all(Array.from({ length: 4 }, () => openTable(table, options)));
  await Promise.all(
    writers.flatMap((writer, w) =>
      Array.from({ length: 10 }, (_, n) =>
        writer.commit(() => ({
          cause: 'flush',
          actions: [addOf(`_young/${w}-${n}.parquet`)],
          totals: { streamed: 1, stored: 1 },
        })),
      ),
    ),
  );
  const { files, lake, version } = await readSnapshot(table);
  expect([files.length, lake?.totals.stored, version]).toEqual([40, 40, 40]);
});

test('A commit follows concurrent commits of others, and may reject them', async () => {
  const { table } = await newLake();
  const [first, second] = await Promise.all([openTable(table, options), openTable(table, options)]);
  await first.commit(() => ({ cause: 'flush', actions: [{ txn: { appId: 's', version: 7 } }] }));
  await expect(
    second.commit((state) => {
      throw new Error(`the position is ${state.txns.get('s')}`);
    }),
  ).rejects.toThrow('the position is 7');
  expect((await readSnapshot(table)).version).toBe(1);
});

/** Returns when the checkpoints after that of version 0 were written. */
async function checkpointTimes(log: string): Promise<number[]> {
  const names = (await readdir(log)).filter((name) => /^0+[1-9]\d*\.checkpoint\.parquet$/.test(name));
  return Promise.all(names.map(async (name) => (await stat(path.join(log, name))).mtimeMs));
}

test('A checkpoint has the same state as the log, with the older log removed, and older versions can be read', async () => {
  const { table, log } = await newLake();
  const writer = await openTable(table, options);
  for (let n = 0; n < checkpointEvery + 5; n += 1) {
    await writer.commit(() => ({
      cause: 'flush',
      actions: [
        addOf(`_young/${n} ü%.parquet`.replaceAll(' ', '%20').replace('%.', '%25.')),
        { txn: { appId: 's', version: n } },
        ...(n === 3 ? [{ remove: { path: '_young/1%20ü%25.parquet', deletionTimestamp: 5, dataChange: true } }] : []),
      ],
    }));
  }
  const before = await loadTableState(table);
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  expect(await checkpointWhenDue(duckdb, writer, noCrashPoint)).toBe(before.version);
  const [written] = await checkpointTimes(log);
  expect(await checkpointWhenDue(duckdb, writer, noCrashPoint)).toBe(before.version);
  expect(await checkpointTimes(log)).toEqual([written]);
  duckdb.close();
  for (const name of (await readdir(log)).filter((candidate) => /^0+\d\.|^0+[1-9]\d\.json/.test(candidate)))
    await rm(path.join(log, name));
  const after = await loadTableState(table);
  // A checkpoint has its files in the order of their paths.
  expect([after.version, [...after.files.keys()].toSorted(), [...after.tombstones.keys()], [...after.txns]]).toEqual([
    before.version,
    [...before.files.keys()].toSorted(),
    [...before.tombstones.keys()],
    [...before.txns],
  ]);
  expect((await readSnapshot(table)).files.some((file) => file.path === '_young/0 ü%.parquet')).toBe(true);
  await writer.commit(() => ({ cause: 'flush', actions: [addOf('_young/last.parquet')] }));
  expect((await loadTableState(table, before.version)).files.size).toBe(before.files.size);
});

test('The log is trimmed, and removed files are unlinked, only after the retention', async () => {
  const { lakeDir, table } = await newLake();
  const paths = lakePaths(lakeDir);
  let nowMs = 1_000_000_000_000;
  const writer = await openTable(table, { ...options, clock: { nowMs: () => nowMs } });
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  await writeFile(path.join(paths.young, 'a.parquet'), 'x');
  await writer.commit(() => ({ cause: 'flush', actions: [addOf('_young/a.parquet')] }));
  await writer.commit(() => ({
    cause: 'seal',
    actions: [{ remove: { path: '_young/a.parquet', deletionTimestamp: nowMs, dataChange: false } }],
  }));
  for (let n = 0; n < checkpointEvery; n += 1) await writer.commit(() => ({ cause: 'flush', actions: [] }));
  await checkpointWhenDue(duckdb, writer, noCrashPoint);
  duckdb.close();
  const clean = () => ({ nowMs, retentionMs: 1000, crashPoint: noCrashPoint });
  nowMs += 999;
  expect([await vacuum(writer, clean()), await trimLog(writer, paths.failed, clean())]).toEqual([0, 0]);
  nowMs += 1;
  expect([await vacuum(writer, clean()), await trimLog(writer, paths.failed, clean())]).toEqual([
    1,
    checkpointEvery + 4,
  ]);
  expect(await readdir(paths.young)).toEqual([]);
  const { commits, checkpoints } = await listLog(table);
  expect([commits, checkpoints]).toEqual([[checkpointEvery + 2], [checkpointEvery + 2]]);
  expect((await readSnapshot(table)).lake?.totals.stored).toBe(0);
  await writer.commit(() => ({ cause: 'flush', actions: [] }));
  expect((await readSnapshot(table)).version).toBe(checkpointEvery + 3);
});

test('Writers and readers reject a table whose protocol requires unknown features, with a hint', async () => {
  const { table } = await newLake();
  const writer = await openTable(table, options);
  for (const protocol of [
    { minReaderVersion: 3, minWriterVersion: 7 },
    { minReaderVersion: 1, minWriterVersion: 7, writerFeatures: ['tributary-writer', 'later'] },
    { minReaderVersion: 1, minWriterVersion: 7 },
  ]) {
    await writer.commit(() => ({ cause: 'protocol', actions: [{ protocol }] }));
    await expect(readSnapshot(table)).rejects.toMatchObject({
      code: 'lake_protocol',
      hint: expect.stringContaining('newer version') as string,
    });
    await expect(openTable(table, options)).rejects.toMatchObject({ code: 'lake_protocol' });
    await writer.commit(() => ({ cause: 'protocol', actions: [{ protocol: tableProtocol }] }));
    expect((await readSnapshot(table)).files).toEqual([]);
  }
});

test('A log with a missing version or a broken line is an error, never a shorter table', async () => {
  const { log, table } = await newLake();
  const writer = await openTable(table, options);
  for (let n = 0; n < 3; n += 1) await writer.commit(() => ({ cause: 'flush', actions: [] }));
  const second = path.join(log, '00000000000000000002.json');
  const text = await readFile(second);
  await writeFile(second, '{"add":');
  await expect(readSnapshot(table)).rejects.toMatchObject({ code: 'log_damaged' });
  await writeFile(second, '{"add":{"size":1}}');
  await expect(readSnapshot(table)).rejects.toMatchObject({ code: 'log_damaged' });
  await rm(second);
  await expect(readSnapshot(table)).rejects.toThrow('version 2');
  await writeFile(second, text);
  expect((await readSnapshot(table)).version).toBe(3);
});

test('A file outside the table is refused', async () => {
  const { table } = await newLake();
  const writer = await openTable(table, options);
  await writer.commit(() => ({ cause: 'flush', actions: [addOf('../../secret.parquet')] }));
  await expect(readSnapshot(table)).rejects.toMatchObject({ code: 'lake_protocol' });
});

test('One commit adds a column for a new optional field, with NULL in old rows, and other changes are rejected', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const older = eventColumns.filter((column) => column.name !== 'age' && column.name !== 'hwid');
  await ensureLake(lakeDir, { ...options, columns: older });
  const { table } = lakePaths(lakeDir);
  const stream = createMemoryStream();
  stream.publish([eventLine({ age: 30 })]);
  const compactor = await startTestCompact(folder, stream);
  await waitFor('stored', async () => (await readSnapshot(table)).lake?.totals.stored === 1);
  await compactor.stop();
  const state = await loadTableState(table);
  const names = (JSON.parse(state.metaData?.schemaString ?? '{}') as { fields: { name: string }[] }).fields.map(
    (field) => field.name,
  );
  expect(names).toEqual([...older.map((column) => column.name), 'age', 'hwid']);
  expect(await readRows(folder, 'event_id, age, hwid')).toMatchObject([{ age: 30, hwid: null }]);

  const again = (await readSnapshot(table)).version;
  await openLake(lakeDir, options);
  expect((await readSnapshot(table)).version).toBe(again);
  const changed: Column[] = eventColumns.map((column) =>
    column.name === 'age' ? { ...column, type: 'BIGINT' } : column,
  );
  await expect(openLake(lakeDir, { ...options, columns: changed })).rejects.toMatchObject({ code: 'schema_change' });
  await expect(openLake(lakeDir, { ...options, columns: older })).rejects.toMatchObject({ code: 'schema_change' });
  expect((await readSnapshot(table)).version).toBe(again);
});

test('Files are pruned by their statistics in the log, and never without', () => {
  const unknown: DataFile = {
    path: 'x',
    absolutePath: '/x',
    sizeBytes: 1,
    numRecords: 1,
    minValues: {},
    maxValues: {},
    sha256: undefined,
    young: true,
  };
  const known: DataFile = {
    ...unknown,
    minValues: {
      id_app: 5,
      kind: 'login',
      event_time: '2024-01-01T00:00:00.000Z',
      available_at: '2024-01-02T00:00:00.000Z',
    },
    maxValues: {
      id_app: 9,
      kind: 'login',
      event_time: '2024-01-01T00:00:10.000Z',
      available_at: '2024-01-02T00:00:00.000Z',
    },
  };
  const kept = (filter: Parameters<typeof pruneFiles>[1]) => pruneFiles([unknown, known], filter).length === 2;
  const start = Date.parse('2024-01-01T00:00:00Z');
  expect(pruneFiles([unknown], { idApps: [], eventTime: { fromMs: 1, toMs: 2 }, kinds: ['login'] })).toEqual([]);
  expect([
    kept({ idApps: [9, 20] }),
    kept({ idApps: [4, 10] }),
    kept({ kinds: ['login'] }),
    kept({ kinds: ['registration'] }),
  ]).toEqual([true, false, true, false]);
  expect([
    kept({ eventTime: { fromMs: start + 10_000 } }),
    kept({ eventTime: { fromMs: start + 10_002 } }),
    kept({ eventTime: { toMs: start } }),
    kept({ eventTime: { toMs: start - 1 } }),
  ]).toEqual([true, false, true, false]);
  expect([kept({}), kept({ availableAt: { fromMs: start, toMs: start + 1000 } })]).toEqual([true, false]);
});

test('A file system without hard links is rejected with a clear message', async () => {
  const { log } = await newLake();
  const refusal = Object.assign(new Error('EPERM: operation not permitted, link'), { code: 'EPERM' });
  await expect(assertHardLinks(log, () => Promise.reject(refusal))).rejects.toMatchObject({
    code: 'start_failed',
    message: expect.stringContaining('no hard links') as string,
  });
  await assertHardLinks(log);
  expect((await readdir(log)).filter((name) => name.includes('probe'))).toEqual([]);
});
