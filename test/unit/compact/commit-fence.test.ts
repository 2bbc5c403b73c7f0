import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Compactor } from '../../../src/compact/wait-for-repair.ts';
import { keyedEventIds } from '../../../src/datasets/event-id.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable, type BuildChange } from '../../../src/lake/log/table.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import type { StreamReader } from '../../../src/stream/stream.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

const clock = createClock(0);
/** Timeout for a busy machine, ms; short enough that a missing check shows within a minute. */
const soonMs = 40_000;

/** Commits concurrently with the compactor, as another process with the same claim on the lake would. */
async function commitBeside(folder: string, build: BuildChange): Promise<void> {
  const table = await openTable(lakePaths(path.join(folder, 'lake')).table, { clock, crashPoint: noCrashPoint });
  await table.commit(build);
}

/** Creates a crash point that runs a function the first time that a step is reached. */
function once(wanted: string, happen: () => Promise<void>): CrashPoint {
  let left = 1;
  return async (step) => {
    if (step === wanted && (left -= 1) === 0) await happen();
  };
}

async function storedRows(folder: string): Promise<number> {
  return (await readSnapshot(lakePaths(path.join(folder, 'lake')).table)).lake?.totals.stored ?? 0;
}

/** Returns the error with which the compactor ends; 'stored' if it has stored a row instead. */
function endOrStored(folder: string, compactor: Compactor): Promise<unknown> {
  const stored = waitFor('a row is stored', async () => (await storedRows(folder)) > 0, soonMs).then(() => 'stored');
  return Promise.race([compactor.failed, stored]);
}

test.for<{ readonly what: string; readonly change: BuildChange }>([
  {
    what: 'the position has moved',
    change: (_state, lake) => {
      if (lake.epoch === undefined) throw new Error('the lake follows no stream');
      return {
        cause: 'flush',
        actions: [{ txn: { appId: lake.epoch.appId, version: 1 } }],
        epoch: { ...lake.epoch, position: 1 },
      };
    },
  },
  {
    what: 'another epoch has begun at the same position',
    change: (_state, lake) => {
      if (lake.epoch === undefined) throw new Error('the lake follows no stream');
      return {
        cause: 'epoch',
        actions: [{ txn: { appId: 'ANOTHER@1', version: 0 } }],
        epoch: { ...lake.epoch, appId: 'ANOTHER@1' },
      };
    },
  },
])('A batch is not committed when $what since it was pulled', async ({ change }) => {
  const folder = testFolder();
  const stream = createMemoryStream();
  stream.publish([eventLine()]);
  const compactor = await startTestCompact(folder, stream, {
    crashPoint: once('flush-written', () => commitBeside(folder, change)),
  });
  onTestFinished(() => compactor.stop());
  await expect(endOrStored(folder, compactor)).rejects.toMatchObject({ code: 'fenced' });
  expect(await readRows(folder, 'event_id')).toEqual([]);
});

test('A batch gets a later available_at when another commit has overtaken it', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const aheadMs = clock.nowMs() + 60_000;
  stream.publish([eventLine()]);
  const ahead: BuildChange = () => ({ cause: 'replay', actions: [], availableAtMs: aheadMs });
  const compactor = await startTestCompact(folder, stream, {
    crashPoint: once('flush-written', () => commitBeside(folder, ahead)),
  });
  onTestFinished(() => compactor.stop());
  await waitFor('the row is stored', async () => (await storedRows(folder)) === 1, soonMs);
  const [row] = await readRows(folder, 'event_id, available_at');
  expect(Number(row?.['available_at'])).toBeGreaterThanOrEqual(aheadMs);
});

test('A batch with keys is classified again when another process has stored keyed events meanwhile', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const id = keyedEventIds({ idApp: 1, key: 'k', method: 'login', eventTexts: ['x'] })(0);
  stream.publish([eventLine({ event_id: id })]);
  let written = 0;
  const compactor = await startTestCompact(folder, stream, {
    async crashPoint(step) {
      if (step !== 'flush-written') return;
      written += 1;
      if (written === 1) await commitBeside(folder, () => ({ cause: 'replay', actions: [], addsKeys: true }));
    },
  });
  onTestFinished(() => compactor.stop());
  await waitFor('the row is stored', async () => (await storedRows(folder)) === 1, soonMs);
  expect(written).toBe(2);
});

test('A stream that loses its tail between the check of its anchor and the pull is read again from where it was cut', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const before = await startTestCompact(folder, stream);
  stream.publish([eventLine()]);
  await waitFor('the first is stored', async () => (await storedRows(folder)) === 1);
  stream.publish([eventLine()]);
  await waitFor('the second is stored', async () => (await storedRows(folder)) === 2);
  await before.stop();
  let isCut = false;
  const reader: StreamReader = {
    ...stream,
    // the message after the position is then another one, and the one at the position was never read
    pull(after, limits) {
      if (!isCut) {
        stream.truncate(1);
        stream.publish([eventLine()]);
        stream.publish([eventLine()]);
      }
      isCut = true;
      return stream.pull(after, limits);
    },
  };
  const compactor = await startTestCompact(folder, reader);
  onTestFinished(() => compactor.stop());
  await waitFor('both new messages are stored', async () => (await storedRows(folder)) === 4, soonMs);
  expect((compactor.facts()['streamFaults'] as { fault: string }[]).map(({ fault }) => fault)).toEqual(['replaced']);
});

test('A compactor that has lost the lake while it had nothing to flush seals nothing', async () => {
  const folder = testFolder();
  const table = lakePaths(path.join(folder, 'lake')).table;
  const stream = createMemoryStream();
  let offsetMs = 0;
  const first = await startTestCompact(folder, stream, {
    withoutLock: true,
    spoolDir: path.join(folder, 'spool-1'),
    sealAgeMs: 3_600_000,
    clock: { nowMs: () => clock.nowMs() + offsetMs },
  });
  onTestFinished(() => first.stop());
  stream.publish([eventLine()]);
  await waitFor('the row is stored', async () => (await storedRows(folder)) === 1);
  const second = await startTestCompact(folder, stream, { withoutLock: true, spoolDir: path.join(folder, 'spool-2') });
  onTestFinished(() => second.stop());
  offsetMs = 2 * 3_600_000;
  const isSealed = async (): Promise<boolean> => (await readSnapshot(table)).files.every((file) => !file.young);
  const sealed = waitFor('the row is sealed', isSealed, soonMs).then(() => 'sealed');
  await expect(Promise.race([first.failed, sealed])).rejects.toMatchObject({ code: 'fenced' });
  expect(await isSealed()).toBe(false);
});

test("A compactor that was suspended between the check of the stream's owner and its commit checks again, and commits nothing of a stream that was taken over", async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  let isTaken = false;
  let refusals = 0;
  const reader: StreamReader = {
    ...stream,
    async assertOwner() {
      if (!isTaken) return;
      refusals += 1;
      throw new AppError('stream_taken', 'another service has taken the stream over');
    },
  };
  const ownerHoldsMs = 200;
  const standStill: CrashPoint = async (step) => {
    if (step !== 'commit-written' || isTaken || (await storedRows(folder)) === 0) return;
    isTaken = true;
    const stoodStillAtMs = performance.now();
    await waitFor('the answer is old', () => performance.now() - stoodStillAtMs > ownerHoldsMs);
  };
  const compactor = await startTestCompact(folder, reader, { ownerHoldsMs, crashPoint: standStill });
  onTestFinished(() => compactor.stop());
  stream.publish([eventLine()]);
  await waitFor('the first is stored', async () => (await storedRows(folder)) === 1, soonMs);
  stream.publish([eventLine()]);
  await waitFor(
    'it is asked again, or the row is stored',
    async () => refusals > 0 || (await storedRows(folder)) === 2,
    soonMs,
  );
  expect(await storedRows(folder)).toBe(1);
});
