import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { timeOrderedEventIds } from '../../../src/datasets/event-id.ts';
import { createEventFinder } from '../../../src/event-lookup/finder.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { writeWatermark, readSnapshotWithWatermark, readWatermarkMs } from '../../../src/lake/watermark.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import type { StreamReader } from '../../../src/stream/stream.ts';
import { testFolder } from '../../helpers/folder.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

const begin = Date.UTC(2026, 0, 1);

/** Opens a lake on a stream whose broker has a clock that only the test advances. */
async function openLake() {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { table } = lakePaths(lakeDir);
  const broker = { now: begin, nowMs: () => broker.now };
  const stream = createMemoryStream(broker);
  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  const read = (): Promise<number | undefined> => readWatermarkMs(lakeDir, createClock(0));
  const commitsAt = async (): Promise<number | undefined> => (await readSnapshot(table)).lake?.epoch?.watermarkMs;
  const waitForMark = (ms: number): Promise<void> =>
    waitFor('the watermark is there', async () => (await read()) === ms);
  return { lakeDir, table, broker, stream, compact: compactor, read, commitsAt, waitForMark };
}

test('The commit of a flush has the time at which the last message of its batch was stored', async () => {
  const { stream, broker, table, commitsAt, read } = await openLake();
  stream.publish([eventLine()]);
  broker.now += 5;
  stream.publish([eventLine(), eventLine()]);
  await waitFor('both are stored', async () => (await readSnapshot(table)).lake?.totals.stored === 3);
  expect([await commitsAt(), await read()]).toEqual([begin + 5, begin + 5]);
});

test('A lake without messages is complete up to the last time at which the stream was empty', async () => {
  const { broker, waitForMark, commitsAt } = await openLake();
  broker.now += 60_000;
  await waitForMark(begin + 60_000);
  expect(await commitsAt()).toBeUndefined();
});

test('The watermark advances without commits while no message arrives', async () => {
  const { stream, broker, table, waitForMark, compact } = await openLake();
  stream.publish([eventLine()]);
  await waitForMark(begin);
  const { version } = await readSnapshot(table);
  broker.now += 3_600_000;
  await waitForMark(begin + 3_600_000);
  expect((await readSnapshot(table)).version).toBe(version);
  expect(compact.facts()['watermark']).toBe(new Date(begin + 3_600_000).toISOString());
});

test("The watermark follows a broker's clock that is set back, while idle and with the next message", async () => {
  const { stream, broker, waitForMark, read } = await openLake();
  broker.now += 3_600_000;
  stream.publish([eventLine()]);
  await waitForMark(begin + 3_600_000);
  broker.now = begin + 1000;
  await waitForMark(begin + 1000);
  broker.now = begin + 500;
  stream.publish([eventLine()]);
  await waitForMark(begin + 500);
  expect(await read()).toBe(begin + 500);
});

test('A watermark in the future is not published: a clock is wrong, and it is unknown which', async () => {
  const { broker, lakeDir, waitForMark } = await openLake();
  await waitForMark(begin);
  broker.now += 60_000;
  await waitForMark(begin + 60_000);
  const before = { nowMs: () => begin + 59_999 };
  expect(await readWatermarkMs(lakeDir, before)).toBeUndefined();
  expect(await readWatermarkMs(lakeDir, { nowMs: () => begin + 60_000 })).toBe(begin + 60_000);
});

test("A broker's clock that is ahead is a warning, and the status has no watermark either", async () => {
  const { broker, compact, waitForMark } = await openLake();
  await waitForMark(begin);
  expect(compact.facts()).toMatchObject({ watermark: new Date(begin).toISOString(), warnings: [] });
  broker.now = Date.now() + 600_000;
  await waitFor('it is noticed', () => JSON.stringify(compact.facts()['warnings']).includes('broker_clock_ahead'));
  expect(compact.facts()).not.toHaveProperty('watermark');
  broker.now = begin + 60_000;
  await waitForMark(begin + 60_000);
  expect(compact.facts()).toMatchObject({ watermark: new Date(begin + 60_000).toISOString(), warnings: [] });
});

test('The watermark file is ignored if it is damaged, or of another position or epoch', async () => {
  const { stream, table, lakeDir, compact, read, waitForMark } = await openLake();
  stream.publish([eventLine()]);
  await waitForMark(begin);
  await compact.stop();
  const epoch = (await readSnapshot(table)).lake?.epoch;
  const { appId = '', position = 0 } = epoch ?? {};
  const said: (number | undefined)[] = [];
  for (const claim of [
    { appId, position, watermarkMs: begin + 1 },
    { appId, position: position + 1, watermarkMs: begin + 2 },
    { appId, position: position - 1, watermarkMs: begin + 3 },
    { appId: `${appId}#2`, position, watermarkMs: begin + 4 },
  ]) {
    await writeWatermark(lakeDir, claim);
    said.push(await read());
  }
  expect(said).toEqual([begin + 1, begin, begin, begin]);
  await writeWatermark(lakeDir, { appId, position, watermarkMs: begin + 5 });
  const { watermark: file } = lakePaths(lakeDir);
  writeFileSync(file, readFileSync(file, 'utf8').replace(String(begin + 5), String(begin + 6)));
  expect(await read()).toBe(begin);
});

test('A new epoch has no watermark until the lake has an event of it', async () => {
  const { stream, broker, table, waitForMark, commitsAt } = await openLake();
  stream.publish([eventLine()]);
  await waitForMark(begin);
  stream.recreate();
  broker.now -= 1000;
  stream.publish([eventLine()]);
  await waitFor('the new stream is read', async () => (await readSnapshot(table)).lake?.totals.stored === 2);
  expect(await commitsAt()).toBe(begin - 1000);
});

test('An older version has the watermark of its commit, and the newest that of the lake', async () => {
  const { stream, broker, table, waitForMark } = await openLake();
  stream.publish([eventLine()]);
  await waitForMark(begin);
  const { version } = await readSnapshot(table);
  broker.now += 1000;
  stream.publish([eventLine()]);
  await waitForMark(begin + 1000);
  const clock = createClock(0);
  const older = await readSnapshotWithWatermark(table, clock, { version, tag: undefined });
  expect([older.snapshot.version, older.watermarkMs]).toEqual([version, begin]);
  expect((await readSnapshotWithWatermark(table, clock)).watermarkMs).toBe(begin + 1000);
});

test('A stream that loses its end and reuses the sequences during a check does not move the watermark', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const broker = { now: begin, nowMs: () => broker.now };
  const stream = createMemoryStream(broker);
  const read = (): Promise<number | undefined> => readWatermarkMs(lakeDir, createClock(0));
  let [arrivals, isDamaged, isReady] = [0, false, false];
  const seen: (number | undefined)[] = [];
  const reader: StreamReader = {
    ...stream,
    arrivals: () => arrivals,
    async state() {
      if (isDamaged) seen.push(await read());
      if (isReady && !isDamaged) {
        isDamaged = true;
        stream.truncate(1);
        broker.now += 5000;
        stream.publish([eventLine()]);
        broker.now += 5000;
        arrivals += 1;
      }
      return await stream.state();
    },
  };
  stream.publish([eventLine()]);
  stream.publish([eventLine()]);
  const compactor = await startTestCompact(folder, reader);
  onTestFinished(() => compactor.stop());
  await waitFor('the watermark is there', async () => (await read()) === begin);
  const { watermark: file } = lakePaths(lakeDir);
  // Written while idle only: from then on the stream is read for this alone.
  await waitFor('the stream is idle', () => existsSync(file));
  isReady = true;
  await waitFor('it has been looked at again', () => seen.length > 0);
  expect(seen[0]).toBe(begin);
});

test('A lookup that finds no event returns the watermark from before it searched the tables', async () => {
  const { broker, lakeDir, stream, waitForMark } = await openLake();
  stream.publish([eventLine()]);
  await waitForMark(begin);
  const folder = testFolder();
  const eventFinder = createEventFinder({
    lakeDir,
    indexDir: path.join(folder, 'index'),
    workDir: path.join(folder, 'work'),
    async readBacklog() {
      broker.now += 60_000;
      await waitForMark(begin + 60_000);
      return 'complete';
    },
  });
  onTestFinished(() => eventFinder.close());
  const eventId = timeOrderedEventIds(begin)(0);
  const sought = { target: { eventId, idApp: 1 }, idApps: [1], deadlineMs: performance.now() + 60_000 };
  expect(await eventFinder.find(sought)).toEqual({
    state: 'never_seen',
    events: [],
    watermark: new Date(begin).toISOString(),
  });
});
