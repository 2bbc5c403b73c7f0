import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { pruneFiles, toAddFilter, type FileFilter } from '../../../src/lake/files/prune.ts';
import { openLake } from '../../../src/lake/lake.ts';
import type { AddAction, AddFilter } from '../../../src/lake/log/actions.ts';
import { readSnapshotAt } from '../../../src/lake/log/change-feed.ts';
import { writeCheckpoint } from '../../../src/lake/log/checkpoint.ts';
import { checkpointName, commitName, logFolder } from '../../../src/lake/log/log-files.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import type { Table } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { testFolder } from '../../helpers/folder.ts';

const begin = Date.UTC(2024, 0, 1);
const dayMs = 86_400_000;
const kinds = ['custom_event', 'login', "o'clock", 'zulu ü'];

/** Returns an add of a day, a kind and a range of apps, by its number. */
function addOf(n: number): AddAction {
  const startMs = begin + (n % 30) * dayMs;
  const [start, end] = [startMs, startMs + dayMs - 1].map((ms) => new Date(ms).toISOString());
  const kind = kinds[n % kinds.length];
  const bounds = (time: string | undefined, idApp: number) => ({ kind, id_app: idApp, event_time: time });
  const stats = { numRecords: 1 + (n % 5), minValues: bounds(start, n % 7), maxValues: bounds(end, (n % 7) + (n % 3)) };
  return {
    path: `_sealed/${n}.parquet`,
    partitionValues: {},
    size: n + 1,
    modificationTime: startMs,
    dataChange: true,
    stats: JSON.stringify(stats),
    // Each eleventh is not a plain add.
    tags: n % 11 === 0 ? { since: '5' } : { sha256: String(n).padStart(64, '0') },
  };
}

const odd: readonly (string | undefined)[] = [
  undefined,
  '',
  'not JSON',
  '{}',
  '[]',
  '{"numRecords":1,"minValues":5,"maxValues":null}',
  '{"numRecords":1,"minValues":{"id_app":3},"maxValues":{"kind":"login"}}',
  // Another engine may write times in another form of the same length.
  '{"numRecords":1,"maxValues":{"event_time":"2024-01-04 05:00:00.000Z"}}',
  '{"numRecords":1,"minValues":{"id_app":null,"event_time":"+012024-01-01T00:00:00.000Z"},"maxValues":{"id_app":{}}}',
];

const filters: readonly FileFilter[] = [
  {},
  { idApps: [] },
  { idApps: [3] },
  { idApps: [0, 8] },
  { idApps: Array.from({ length: 40 }, (_, index) => index + 4) },
  { kinds: ['login'] },
  { kinds: ["o'clock", 'absent'] },
  { kinds: ['zulu ü'] },
  { kinds: [] },
  { eventTime: { fromMs: begin + 3 * dayMs, toMs: begin + 4 * dayMs } },
  { eventTime: { fromMs: begin + 4 * dayMs - 0.5 } },
  { eventTime: { fromMs: begin + 4 * dayMs } },
  { eventTime: { toMs: begin - 1 } },
  { eventTime: { fromMs: -Infinity, toMs: 1e18 } },
  { eventTime: { fromMs: Date.UTC(11_000, 0, 1) } },
  { availableAt: { fromMs: begin } },
  { idApps: [2, 5], kinds: ['custom_event', 'login'], eventTime: { fromMs: begin, toMs: begin + 10 * dayMs } },
];

async function openTestTable(): Promise<{ readonly table: Table; readonly checkpoint: () => Promise<void> }> {
  const options = { clock: createClock(0), crashPoint: noCrashPoint, retentionMs: dayMs };
  const table = await openLake(`${testFolder()}/lake`, options);
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const checkpoint = async (): Promise<void> =>
    void (await writeCheckpoint(duckdb, table.dir, table.state(), noCrashPoint));
  return { table, checkpoint };
}

const removeOf = (n: number) => ({
  remove: { path: `_sealed/${n}.parquet`, deletionTimestamp: 5, dataChange: true },
});

test('A filter of the log leaves out files, but none that may have rows of it, in any version', async () => {
  const { table, checkpoint } = await openTestTable();
  const oddAdds = odd.map((stats, index) => {
    const { stats: _stats, ...add } = addOf(1000 + index);
    return { add: stats === undefined ? add : { ...add, stats } };
  });
  const adds = Array.from({ length: 420 }, (_, n) => ({ add: addOf(n) }));
  await table.commit(() => ({ cause: 'seal', actions: [...adds, ...oddAdds] }));
  await table.commit(() => ({ cause: 'seal', actions: [1, 2, 3].map(removeOf) }));
  await checkpoint();
  const { version } = table.state();
  // After the checkpoint, files are removed that were and were not read from it; one is added, and one added again.
  await table.commit(() => ({ cause: 'seal', actions: [4, 5, 6, 7].map(removeOf) }));
  await table.commit(() => ({ cause: 'flush', actions: [{ add: addOf(5) }, { add: addOf(500) }] }));

  const whole = await readSnapshot(table.dir);
  const older = await readSnapshotAt(table.dir, { version, tag: undefined });
  expect([whole.files.length, older.files.length]).toEqual([424, 426]);
  for (const [index, filter] of filters.entries()) {
    const needed = toAddFilter(filter);
    const read = await readSnapshot(table.dir, needed);
    const paths = (files: typeof read.files) => pruneFiles(files, filter).map((file) => [file.path, file.sizeBytes]);
    expect(paths(read.files), JSON.stringify(filter)).toEqual(paths(whole.files));
    expect({ ...read, files: [], young: [] }).toEqual({ ...whole, files: [], young: [] });
    if (index % 3 > 0) continue;
    const readOlder = await readSnapshotAt(table.dir, { version, tag: undefined }, { needed });
    expect(paths(readOlder.files), JSON.stringify(filter)).toEqual(paths(older.files));
  }
});

test('A filter keeps the other files of a checkpoint out of memory', async () => {
  const { table, checkpoint } = await openTestTable();
  await table.commit(() => ({ cause: 'seal', actions: Array.from({ length: 400 }, (_, n) => ({ add: addOf(n) })) }));
  await checkpoint();
  const oneDay = { eventTime: { fromMs: begin + 2 * dayMs, toMs: begin + 3 * dayMs - 1 } };
  const { files } = await readSnapshot(table.dir, toAddFilter(oneDay));
  const plain = files.filter(({ sha256 }) => sha256 !== undefined);
  expect(plain.length).toBeGreaterThan(0);
  expect(pruneFiles(plain, oneDay)).toEqual(plain);
  expect(files.length).toBeLessThan(100);
});

test('A damaged checkpoint is refused with a filter too', async () => {
  const { table, checkpoint } = await openTestTable();
  await table.commit(() => ({ cause: 'seal', actions: Array.from({ length: 50 }, (_, n) => ({ add: addOf(n) })) }));
  await checkpoint();
  const file = path.join(logFolder(table.dir), checkpointName(table.state().version));
  const bytes = readFileSync(file);
  const middle = bytes.length >>> 1;
  bytes.writeUInt8(bytes.readUInt8(middle) ^ 1, middle);
  writeFileSync(file, bytes);
  const needed = toAddFilter({ idApps: [3] });
  const count = async (filter?: AddFilter): Promise<number> =>
    pruneFiles((await readSnapshot(table.dir, filter)).files, { idApps: [3] }).length;
  // The log is complete without it.
  expect(await count(needed)).toBe(await count());
  rmSync(path.join(logFolder(table.dir), commitName(0)));
  await expect(readSnapshot(table.dir, needed)).rejects.toMatchObject({ code: 'log_damaged' });
});
