import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { openChange, recoverChanges } from '../../../src/lake/files/change.ts';
import { ensureLake, lakePaths } from '../../../src/lake/lake.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import { testFolder } from '../../helpers/folder.ts';

const clock = { nowMs: () => 1_700_000_000_000 };

/** Creates a lake, and a change that adds a file, moves one outside the table and removes another. */
async function openLake(crashPoint: CrashPoint = noCrashPoint) {
  const lakeDir = path.join(testFolder(), 'lake');
  await ensureLake(lakeDir, { clock, retentionMs: 86_400_000 });
  const { table: tableDir, staging } = lakePaths(lakeDir);
  const open = (point: CrashPoint) => openTable(tableDir, { clock, crashPoint: point });
  const table = await open(crashPoint);
  const [moved = '', removed = ''] = ['moved.parquet', 'removed.parquet'].map((name) => path.join(lakeDir, name));
  const data = path.join(tableDir, '_young', 'added.parquet');
  writeFileSync(removed, '');
  async function change(): Promise<void> {
    const opened = await openChange(table, staging, 'a test', crashPoint);
    try {
      writeFileSync(path.join(opened.folder, 'new'), 'rows');
      writeFileSync(path.join(opened.folder, 'beside'), 'beside');
      await opened.commit(
        [{ file: path.join(opened.folder, 'new'), path: '_young/added.parquet' }],
        () => ({
          cause: 'replay',
          actions: [
            {
              add: {
                path: '_young/added.parquet',
                partitionValues: {},
                size: 4,
                modificationTime: 0,
                dataChange: true,
              },
            },
          ],
        }),
        { moves: [{ name: 'beside', to: moved }], unlink: [removed] },
      );
    } finally {
      await opened.close();
    }
  }
  return {
    change,
    /** Returns which files exist, and whether the log names the new one. */
    look: async () => {
      const state = (await open(noCrashPoint)).state();
      const isNamed = state.files.has('_young/added.parquet');
      return [existsSync(data), isNamed, existsSync(moved), existsSync(removed)];
    },
    recover: async () => recoverChanges(await open(noCrashPoint), staging),
    read: () => readFileSync(data, 'utf8'),
  };
}

/** Fails at a step, like a process that is killed there. */
const failAt =
  (wanted: string): CrashPoint =>
  async (step) => {
    if (step === wanted) throw new Error(`killed at ${step}`);
  };

const whole = [true, true, true, false];
const nothing = [false, false, false, true];

test('A change links its files, commits them and executes its follow-ups', async () => {
  const { change, look, read, recover } = await openLake();
  await change();
  expect([await look(), read()]).toEqual([whole, 'rows']);
  expect(await recover()).toBe(0);
  expect(await look()).toEqual(whole);
});

test.for(['change-written', 'file-linked', 'files-linked', 'commit-written'])(
  'A change that fails at %s, before its commit, leaves nothing',
  async (step) => {
    const { change, look, recover } = await openLake(failAt(step));
    await expect(change()).rejects.toThrow(step);
    expect(await look()).toEqual(nothing);
    expect(await recover()).toBe(0);
    expect(await look()).toEqual(nothing);
  },
);

test.for(['commit-linked', 'commit-synced', 'change-committed', 'change-followed'])(
  'A change that fails at %s, after its commit, is kept, and the next recovery executes its follow-ups',
  async (step) => {
    const { change, look, read, recover } = await openLake(failAt(step));
    await expect(change()).rejects.toThrow(step);
    expect((await look()).slice(0, 2)).toEqual([true, true]);
    expect(await recover()).toBe(1);
    expect([await look(), read()]).toEqual([whole, 'rows']);
  },
);
