import { existsSync, rmSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { AddAction } from '../../../src/lake/log/actions.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable, type BuildChange } from '../../../src/lake/log/table.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { acquireLock } from '../../../src/runtime/files/lock.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

const clock = createClock(0);
const soonMs = 20_000;

async function commitBeside(folder: string, build: BuildChange): Promise<void> {
  const table = await openTable(lakePaths(path.join(folder, 'lake')).table, { clock, crashPoint: noCrashPoint });
  await table.commit(build);
}

/** The same file with three rows by the log. */
function countedAsThree(add: AddAction): AddAction {
  return { ...add, stats: JSON.stringify({ ...(JSON.parse(add.stats ?? '{}') as object), numRecords: 3 }) };
}

/** Creates a lake of one young file with two rows, and no process on it. */
async function withYoungFile(): Promise<{ readonly folder: string; readonly stream: MemoryStream }> {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  stream.publish([eventLine(), eventLine({ custom_user_id: 'u2' })]);
  await waitFor(
    'the rows are stored',
    async () => (await readSnapshot(lakePaths(path.join(folder, 'lake')).table)).lake?.totals.stored === 2,
  );
  await compactor.stop();
  return { folder, stream };
}

async function sealedFiles(folder: string): Promise<number> {
  return (await readSnapshot(lakePaths(path.join(folder, 'lake')).table)).files.filter((file) => !file.young).length;
}

test('A seal that wrote another number of rows than the log counts is refused, and its rows stay young', async () => {
  const { folder, stream } = await withYoungFile();
  await commitBeside(folder, ({ files }) => ({
    cause: 'replay',
    actions: [...files.values()].map((add) => ({ add: countedAsThree(add) })),
  }));
  const compactor = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  onTestFinished(() => compactor.stop());
  const problems = (): string => JSON.stringify(compactor.facts()['problems']);
  await waitFor(
    'the seal is refused',
    async () => problems().includes('a seal of 3 rows wrote 2') || (await sealedFiles(folder)) > 0,
    soonMs,
  );
  expect(problems()).toContain('a seal of 3 rows wrote 2');
  expect(await sealedFiles(folder)).toBe(0);
  stream.publish([eventLine()]);
  await waitFor('flushes continue', async () => (await readRows(folder, 'event_id')).length === 3, soonMs);
});

test('A seal whose rows were removed from the table while it was renaming does not bring them back', async () => {
  const { folder, stream } = await withYoungFile();
  let taken = 0;
  const compactor = await startTestCompact(folder, stream, {
    sealAgeMs: 10,
    async crashPoint(step) {
      if (step !== 'files-linked' || taken > 0) return;
      await commitBeside(folder, ({ files }) => {
        taken = files.size;
        return {
          cause: 'erase',
          actions: [...files.keys()].map((name) => ({
            remove: { path: name, deletionTimestamp: clock.nowMs(), dataChange: true },
          })),
          totals: { stored: -2, erased: 2 },
        };
      });
    },
  });
  onTestFinished(() => compactor.stop());
  await waitFor('the seal renames its files', () => taken > 0, soonMs);
  // a stop lets the seal end
  await compactor.stop();
  expect(taken).toBe(1);
  expect(await readRows(folder, 'event_id')).toEqual([]);
  expect((await readSnapshot(lakePaths(path.join(folder, 'lake')).table)).lake?.totals).toMatchObject({
    stored: 0,
    erased: 2,
  });
});

test('Rows that were due while a command held the maintenance lock are sealed when it is released', async () => {
  const { folder, stream } = await withYoungFile();
  const { table, maintenanceLock } = lakePaths(path.join(folder, 'lake'));
  const checkpoint = path.join(table, '_delta_log/_last_checkpoint');
  rmSync(checkpoint, { force: true });
  const lock = acquireLock(maintenanceLock, 'a command');
  const laterMs = clock.nowMs() + 2 * 3_600_000;
  const compactor = await startTestCompact(folder, stream, {
    sealAgeMs: 3_600_000,
    checkpointEvery: 1,
    // It does not advance: only a check that is still due runs.
    clock: { nowMs: () => laterMs },
  });
  onTestFinished(() => compactor.stop());
  // A run checkpoints after its check for due rows.
  await waitFor('a run has ended', () => existsSync(checkpoint), soonMs);
  expect(await sealedFiles(folder)).toBe(0);
  lock.release();
  await waitFor('the rows are sealed', async () => (await sealedFiles(folder)) === 1, soonMs);
});
