import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { ensureLake, lakePaths } from '../../../src/lake/lake.ts';
import type { Action } from '../../../src/lake/log/actions.ts';
import { writeCheckpoint } from '../../../src/lake/log/checkpoint.ts';
import { createSnapshotView, replaceFiles } from '../../../src/lake/log/log-tailer.ts';
import { readSnapshot, toSnapshot, type DataFile, type Snapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable, type Table } from '../../../src/lake/log/table.ts';
import { applyActions, createTableState } from '../../../src/lake/log/table-state.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { createRandom, type Random } from '../../../src/demo/random.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { isLongRun } from '../../helpers/chaos.ts';
import { testFolder } from '../../helpers/folder.ts';
import { isWhole } from '../../helpers/in-turn.ts';

function describeFile({
  path: name,
  absolutePath,
  sizeBytes,
  sha256,
  publishedPath,
  sinceMs,
  ...file
}: DataFile): unknown[] {
  const stats = [file.numRecords, file.minValues, file.maxValues];
  return [name, absolutePath, sizeBytes, sha256, publishedPath, sinceMs, file.young, stats];
}

/** Returns the members of a snapshot and of its files. */
function describe({ files, young, txns, ...rest }: Snapshot): unknown {
  return { ...rest, txns: [...txns], files: files.map(describeFile), young: young.map(describeFile) };
}

const folders = ['_young', 'kind=login/date=2024-01-01', 'kind=login/date=2024-01-02', '_load/x', 'fresh'];

/** Returns a path of the log, with `foreign` sometimes in the encoding of another engine. */
function pickPath(random: Random, foreign: boolean): string {
  const name = random.pick(['a', 'b', 'c', 'd', 'ü', 'x y', 'p%q', '.e', 'f..g']);
  const encoded = encodeURI(`${random.pick(folders)}/${name}${random.integer(0, 9)}.parquet`);
  return foreign && random.chance(0.2) ? encoded.replace('.parquet', '%2Eparquet').replace('=', '%3D') : encoded;
}

function pickActions(random: Random, foreign: boolean): Action[] {
  return Array.from({ length: random.integer(0, 6) }, () => {
    const file = pickPath(random, foreign);
    if (random.chance(0.4)) return { remove: { path: file, deletionTimestamp: 5, dataChange: true } };
    const numRecords = random.integer(0, 99);
    const stats = random.pick([undefined, 'not JSON', JSON.stringify({ numRecords, minValues: { id_app: 1 } })]);
    const tags = random.pick([undefined, { sha256: random.hex(64) }, { sha256: random.hex(64), replaces: 'kind=a/x' }]);
    const size = random.integer(1, 1e9);
    const add = { path: file, partitionValues: {}, size, modificationTime: 7, dataChange: false };
    return { add: { ...add, ...(stats === undefined ? {} : { stats }), ...(tags === undefined ? {} : { tags }) } };
  });
}

test('An incremental snapshot and its size equal those of the whole log', () => {
  for (let seed = 0; seed < (isLongRun ? 5000 : isWhole ? 300 : 100); seed += 1) {
    const random = createRandom(seed);
    const state = createTableState();
    const view = createSnapshotView('/lake/events', state);
    const foreignFrom = random.pick([0, 10, Infinity]);
    for (let version = 0; version < 30; version += 1) {
      const actions = pickActions(random, version >= foreignFrom);
      view.note(actions);
      applyActions(state, version, actions);
      // Several commits may come between two reads.
      if (random.chance(0.3)) continue;
      const whole = toSnapshot('/lake/events', state);
      expect(describe(view.current()), `seed ${seed}, version ${version}`).toEqual(describe(whole));
      expect(state.size, `seed ${seed}, version ${version}`).toEqual({
        rows: whole.files.reduce((sum, file) => sum + (file.numRecords ?? 0), 0),
        bytes: whole.files.reduce((sum, file) => sum + file.sizeBytes, 0),
        youngFiles: whole.young.length,
        sealedFiles: whole.files.length - whole.young.length,
      });
    }
  }
});

test('A snapshot stays the same object until the next commit, and earlier ones do not change', () => {
  const random = createRandom(1);
  const state = createTableState();
  const view = createSnapshotView('/lake/events', state);
  applyActions(state, 0, pickActions(random, false));
  const first = view.current();
  const said = JSON.stringify(describe(first));
  expect(view.current()).toBe(first);
  for (let version = 1; version < 20; version += 1) {
    const actions = pickActions(random, false);
    view.note(actions);
    applyActions(state, version, actions);
    expect(view.current()).not.toBe(first);
  }
  expect(JSON.stringify(describe(first))).toBe(said);
});

const fileOf = (name: string, sizeBytes = 1) => ({ path: name, sizeBytes }) as DataFile;

test('Files are inserted, replaced and removed in a sorted list, at its ends and in between', () => {
  const list = ['b', 'd', 'f'].map((name) => fileOf(name));
  const names = (changes: Record<string, DataFile | undefined>) =>
    replaceFiles(list, new Map(Object.entries(changes)))
      .map(({ path: name, sizeBytes }) => `${name}${sizeBytes}`)
      .join(' ');
  expect(names({})).toBe('b1 d1 f1');
  expect(names({ g: fileOf('g'), a: fileOf('a'), c: fileOf('c') })).toBe('a1 b1 c1 d1 f1 g1');
  expect(names({ b: undefined, f: undefined, x: undefined, a: undefined })).toBe('d1');
  expect(names({ d: fileOf('d', 9), f: undefined })).toBe('b1 d9');
});

/** Writes a checkpoint from a writer's state. */
async function checkpoint(table: Table): Promise<void> {
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  await writeCheckpoint(duckdb, table.dir, table.state(), noCrashPoint).finally(() => duckdb.close());
}

test('Writers that follow the commits of others, across checkpoints, and a new reader see the same table', async () => {
  const lakeDir = path.join(testFolder(), 'lake');
  const options = { clock: createClock(0), crashPoint: noCrashPoint, retentionMs: 86_400_000 };
  await ensureLake(lakeDir, options);
  const { table: tableDir } = lakePaths(lakeDir);
  await mkdir(path.join(tableDir, '_young'), { recursive: true });
  const writers = [await openTable(tableDir, options), await openTable(tableDir, options)];
  const random = createRandom(7);
  for (let round = 0; round < 40; round += 1) {
    const writer = random.pick(writers);
    const actions = pickActions(random, round > 30);
    await writer.commit(() => ({ cause: 'flush', actions }));
    if (random.chance(0.1)) await checkpoint(writer);
    if (!random.chance(0.3)) continue;
    for (const one of writers) await one.refresh();
    const read = describe(await readSnapshot(tableDir));
    expect(writers.map((one) => describe(one.snapshot()))).toEqual([read, read]);
  }
});
