import path from 'node:path';
import { expect, test } from 'vitest';
import type { Action, AddAction } from '../../../src/lake/log/actions.ts';
import { writeCheckpoint } from '../../../src/lake/log/checkpoint.ts';
import { groupRows, readActions } from '../../../src/lake/log/checkpoint-rows.ts';
import { checkpointName, logFolder } from '../../../src/lake/log/log-files.ts';
import { applyActions, createTableState, type TableState } from '../../../src/lake/log/table-state.ts';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../src/lake/sql/literals.ts';
import { ensureFolder } from '../../../src/runtime/files/durable-file.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { testFolder } from '../../helpers/folder.ts';

const plain: AddAction = {
  path: 'kind=login/date=2024-01-01/a.parquet',
  partitionValues: {},
  size: 64_000_000,
  modificationTime: 1_700_000_000_000,
  dataChange: false,
  stats: JSON.stringify({ numRecords: 5, minValues: { kind: 'login "x" ü\\' } }),
  tags: { sha256: 'f'.repeat(64) },
};

const adds: readonly AddAction[] = [
  plain,
  { ...plain, path: '_young/b%20%C3%BC.parquet', tags: { sha256: '0', keyed: '0' } },
  { ...plain, path: 'tagged', tags: { keyed: '0' } },
  { ...plain, path: 'untagged', tags: {} },
  { ...plain, path: 'swapped', tags: { sha256: '0', replaces: 'kind=login/x.parquet' } },
  { ...plain, path: 'other tag', tags: { ZCUBE_ID: 'z' } },
  { ...plain, path: 'empty tag', tags: { sha256: '' } },
  { ...plain, path: 'parted', partitionValues: { date: '2024-01-01' } },
  { ...plain, path: 'a\tb' },
  { ...plain, path: 'c\nd' },
  { ...plain, path: '{"add":{"path":"e","size":1}}' },
  { ...plain, path: '' },
  { ...plain, path: 'laid out', stats: '{\n\t"numRecords": 5\n}' },
  { ...plain, path: 'tab in statistics', stats: '{\t"numRecords":5}' },
  { ...plain, path: 'no statistics', stats: '' },
  { ...plain, path: 'quotes', stats: '"a","b"\'\\\\' },
  { ...plain, path: '"quoted"', tags: { sha256: '""' } },
  { ...plain, path: 'return in statistics', stats: '{\r"numRecords":5}' },
  { ...plain, path: 'pair', stats: '{"maxValues":{"kind":"\u{1f600}"}}' },
  { ...plain, path: ' spaces ', stats: ' {} ' },
  { ...plain, path: '#comment' },
  { ...plain, path: 'NULL', stats: 'NULL' },
  { ...plain, path: 'tab in a tag', tags: { sha256: 'a\tb' } },
];

async function withEngine<T>(work: (duckdb: Duckdb) => Promise<T>): Promise<T> {
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  return work(duckdb).finally(() => duckdb.close());
}

async function readAll(duckdb: Duckdb, file: string): Promise<Action[]> {
  const actions: Action[] = [];
  for await (const some of readActions(duckdb, file)) actions.push(...some);
  return actions;
}

async function writeState(duckdb: Duckdb, state: TableState): Promise<string> {
  const tableDir = testFolder();
  await ensureFolder(logFolder(tableDir));
  await writeCheckpoint(duckdb, tableDir, state, noCrashPoint);
  return path.join(logFolder(tableDir), checkpointName(state.version));
}

test('A checkpoint returns each action as it was written, regardless of its texts', async () => {
  const state = createTableState();
  applyActions(state, 5, [
    { protocol: { minReaderVersion: 1, minWriterVersion: 2 } },
    { txn: { appId: 's\t\n{', version: 7 } },
    ...adds.map((add) => ({ add })),
    { remove: { path: 'gone', deletionTimestamp: 8, dataChange: false } },
  ]);
  const actions = await withEngine(async (duckdb) => readAll(duckdb, await writeState(duckdb, state)));
  const read = createTableState();
  applyActions(read, 5, actions);
  expect(read.files).toEqual(state.files);
  expect([[...read.txns], [...read.tombstones.keys()]]).toEqual([[['s\t\n{', 7]], ['gone']]);
  expect(read.protocol).toMatchObject({ minReaderVersion: 1, minWriterVersion: 2 });
});

test('A checkpoint that is read in several batches returns each row once', async () => {
  const state = createTableState();
  const count = 2 * groupRows + 5;
  applyActions(
    state,
    5,
    Array.from({ length: count }, (_, index) => ({ add: { ...plain, path: `f${index}`, size: index } })),
  );
  const actions = await withEngine(async (duckdb) => readAll(duckdb, await writeState(duckdb, state)));
  expect(actions).toHaveLength(count);
  const sizes = actions.flatMap(({ add }) => (add === undefined ? [] : [`f${add.size}` === add.path ? add.size : -1]));
  expect(new Set(sizes).size).toBe(count);
  expect(Math.min(...sizes)).toBe(0);
});

test('A filter leaves out removed files, also if they fill a row group', async () => {
  const state = createTableState();
  const removed = Array.from({ length: 2 * groupRows }, (_, index) => ({
    remove: { path: `gone${index}`, deletionTimestamp: 8, dataChange: false },
  }));
  applyActions(state, 5, [
    { txn: { appId: 's', version: 7 } },
    { add: { ...plain, tags: { replaces: 'gone' } } },
    ...removed,
  ]);
  const actions: Action[] = [];
  await withEngine(async (duckdb) => {
    const file = await writeState(duckdb, state);
    for await (const some of readActions(duckdb, file, { columns: ['kind'], condition: 'false' }))
      actions.push(...some);
  });
  expect(actions.map((action) => Object.keys(action))).toEqual([['txn'], ['add']]);
});

test('A checkpoint of another engine is read with all members of its adds', async () => {
  const file = path.join(testFolder(), 'other.parquet');
  const [read] = await withEngine(async (duckdb) => {
    await duckdb.run(`COPY (SELECT {'path': 'a', 'partitionValues': MAP {}, 'size': 5::BIGINT, 'modificationTime': 6::BIGINT,
      'dataChange': false, 'stats': '{}', 'tags': MAP {'sha256': '0'}, 'baseRowId': 7::BIGINT} AS add) TO ${sqlText(file)} (FORMAT parquet)`);
    return readAll(duckdb, file);
  });
  expect(read?.add).toEqual({
    path: 'a',
    partitionValues: {},
    size: 5,
    modificationTime: 6,
    dataChange: false,
    stats: '{}',
    tags: { sha256: '0' },
    baseRowId: 7,
  });
});

test('An invalid row is reported as damage', async () => {
  const file = path.join(testFolder(), 'bad.parquet');
  await withEngine(async (duckdb) => {
    await duckdb.run(`COPY (SELECT {'path': 'a'} AS add) TO ${sqlText(file)} (FORMAT parquet)`);
    await expect(readAll(duckdb, file)).rejects.toMatchObject({ code: 'log_damaged' });
  });
});

test('An invalid row before other rows is reported as damage, and its engine can be closed at once', async () => {
  const file = path.join(testFolder(), 'bad.parquet');
  for (let round = 0; round < 3; round += 1) {
    await withEngine(async (duckdb) => {
      await duckdb.run(`COPY (SELECT {'path': CASE WHEN row > 5 THEN 'f' || row END, 'size': 5, 'stats': repeat(md5(row::VARCHAR), 20)} AS add
        FROM range(${3 * groupRows}) AS rows (row)) TO ${sqlText(file)} (FORMAT parquet)`);
      await expect(readAll(duckdb, file)).rejects.toMatchObject({ code: 'log_damaged' });
    });
  }
});

test('A checkpoint of many large adds is read within its memory limit', async () => {
  const file = path.join(testFolder(), 'large.parquet');
  const count = groupRows + 5;
  const actions = await withEngine(async (duckdb) => {
    await duckdb.run(`COPY (SELECT {'path': 'f' || row, 'partitionValues': MAP {}::MAP(VARCHAR, VARCHAR), 'size': 5::BIGINT, 'modificationTime': 6::BIGINT,
      'dataChange': false, 'stats': repeat(md5(row::VARCHAR), 80), 'tags': MAP {'sha256': '0'}} AS add FROM range(${count}) AS rows (row))
      TO ${sqlText(file)} (FORMAT parquet, COMPRESSION snappy)`);
    return readAll(duckdb, file);
  });
  expect(new Set(actions.map(({ add }) => add?.path)).size).toBe(count);
  expect(actions).toHaveLength(count);
});
