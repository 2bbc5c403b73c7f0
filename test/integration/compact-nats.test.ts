import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { openReader } from '../../src/stream/reader.ts';
import { streamName } from '../../src/stream/stream.ts';
import { ensureStream } from '../../src/stream/stream-admin.ts';
import { startDamagedBroker } from '../helpers/damaged-broker.ts';
import { inTurn, oneTestIn } from '../helpers/in-turn.ts';
import { startTestNats, type TestNats } from '../helpers/nats.ts';
import { eventLine, readRows, startTestCompact } from '../helpers/lake.ts';
import { testFolder } from '../helpers/folder.ts';
import { waitFor } from '../helpers/wait.ts';

beforeEach(oneTestIn(3));

let nats: TestNats;
beforeAll(async () => {
  nats = await startTestNats();
});
afterAll(() => nats.stop());

function payload(events: number): Buffer {
  return Buffer.from(Array.from({ length: events }, () => `${JSON.stringify(eventLine())}\n`).join(''));
}

test('Every event that a broker acknowledged is in the lake once, through a kill of the broker and restarts of the compactor', async () => {
  const folder = testFolder();
  const table = path.join(folder, 'lake', 'events');
  const connection = await nats.connect();
  const publisher = openPublisher(connection);
  const readerConnection = await nats.connect();
  const reader = await openReader(readerConnection);
  const stored = async (): Promise<number> => (await readSnapshot(table)).lake?.totals.stored ?? 0;

  const first = await startTestCompact(folder, reader);
  for (let n = 0; n < 20; n += 1) await publisher.publish(payload(100), 5000);
  await waitFor('the first events are stored', async () => (await stored()) === 2000);
  await nats.kill();
  await nats.restart();
  await waitFor('the publisher is back', () =>
    publisher.publish(payload(100), 1000).then(
      () => true,
      () => false,
    ),
  );
  await waitFor('what came after the kill is stored', async () => (await stored()) >= 2100);
  await first.stop();

  await publisher.publish(payload(100), 5000);
  const second = await startTestCompact(folder, reader);
  await waitFor('what came meanwhile is stored', async () => (await stored()) >= 2200);
  await waitFor('the stream keeps the anchor only', async () => (await reader.state()).messages === 1);
  expect(second.facts()['streamFaults']).toEqual([]);
  await second.stop();
  const rows = await readRows(folder, 'event_id');
  expect(new Set(rows.map((row) => row['event_id'])).size).toBe(rows.length);
  expect(rows.length).toBe(await stored());
});

/** Expects one reported stream fault, a new epoch, and each remaining event in the lake once. */
const asItShould = { notices: 1, epochs: 2, missing: [], doubled: 0, problems: [] };

function idsOf(lines: readonly Readonly<Record<string, unknown>>[]): unknown[] {
  return lines.map((line) => line['event_id']);
}

test.for(inTurn(['while the compactor is stopped', 'while it runs'], 2))(
  'A stream that is deleted and recreated %s is read from its start, with an alarm',
  async (when) => {
    const broker = await startDamagedBroker();
    await broker.start();
    const first = await broker.publish();
    await broker.waitForStored(1);
    await broker.publish();
    await broker.waitForStored(2);
    await broker.waitForPurge();
    if (when === 'while the compactor is stopped') await broker.stop();
    await broker.manager.streams.delete(streamName);
    await ensureStream(await broker.nats.connect(), { maxBytes: 2 ** 27 });
    // The sender of the first event never got its acknowledgement, and sends it again.
    await broker.publish(first);
    await broker.publish();
    await broker.publish();
    await broker.start();
    await broker.waitForStored(4);
    expect(await broker.stopAndLook()).toEqual({ ...asItShould, alarms: ['recreated'] });
  },
);

test('Messages that another client deleted are reported as missing by an alarm, and the others are stored', async () => {
  const broker = await startDamagedBroker();
  await broker.start();
  await broker.publish();
  await broker.waitForStored(1);
  await broker.stop();
  const lines = [];
  for (let n = 0; n < 5; n += 1) lines.push(await broker.publish());
  const { lastSequence } = await broker.reader.state();
  await broker.manager.streams.deleteMessage(streamName, lastSequence - 2);
  await broker.start();
  await broker.waitForStored(5);
  expect(await broker.stopAndLook()).toEqual({ ...asItShould, alarms: ['gap'], missing: idsOf(lines.slice(2, 3)) });
});

test('A stream that another client purged past the position is read from its first message, with an alarm', async () => {
  const broker = await startDamagedBroker();
  await broker.start();
  await broker.publish();
  await broker.waitForStored(1);
  await broker.stop();
  const lines = [];
  for (let n = 0; n < 5; n += 1) lines.push(await broker.publish());
  await broker.manager.streams.purge(streamName, { seq: (await broker.reader.state()).lastSequence - 1 });
  await broker.start();
  await broker.waitForStored(3);
  expect(await broker.stopAndLook()).toEqual({ ...asItShould, alarms: ['gap'], missing: idsOf(lines.slice(0, 3)) });
});

test.for(['while the compactor is stopped', 'while it runs'])(
  'A broker whose store lost its tail %s reuses sequences: their new messages are stored, with an alarm',
  async (when) => {
    const broker = await startDamagedBroker();
    await broker.start();
    await broker.publish();
    await broker.waitForStored(1);
    await broker.waitForPurge();
    await broker.keepStore();
    for (let stored = 2; stored <= 4; stored += 1) {
      await broker.publish();
      await broker.waitForStored(stored);
    }
    await broker.waitForPurge();
    if (when === 'while the compactor is stopped') await broker.stop();
    await broker.restoreStore();
    if (when === 'while it runs') await broker.waitForAlarms(1);
    // Numbers 2 to 5: the lake's position is 4.
    for (let n = 0; n < 4; n += 1) await broker.publish();
    await broker.start();
    await broker.waitForStored(8);
    expect(await broker.stopAndLook()).toEqual({
      ...asItShould,
      alarms: [when === 'while it runs' ? 'shortened' : 'replaced'],
    });
  },
);

test('An idle compactor does not poll the end of the stream, and spools new messages at once', async () => {
  const folder = testFolder();
  const own = await startTestNats();
  onTestFinished(() => own.stop());
  const publisher = openPublisher(await own.connect());
  const reader = await openReader(await own.connect());
  let asked = { times: 0, atMs: 0 };
  const counted = {
    ...reader,
    state() {
      asked = { times: asked.times + 1, atMs: performance.now() };
      return reader.state();
    },
  };
  // Longer than the test takes: what comes waits for others, and is not in the lake yet.
  const compactor = await startTestCompact(folder, counted, { flushAgeMs: 60_000 });
  onTestFinished(() => compactor.stop());
  const restsForMs = 2000;
  await waitFor(
    'the stream gets no further request',
    () => asked.times > 0 && performance.now() - asked.atMs > restsForMs,
  );
  const { sequence } = await publisher.publish(payload(1), 5000);
  const file = lakePaths(path.join(folder, 'lake')).streamEnd;
  await waitFor('the new end was written down', () =>
    readFileSync(file, 'utf8').includes(`"lastSequence":${sequence},`),
  );
  expect((await readSnapshot(path.join(folder, 'lake', 'events'))).lake?.totals.stored ?? 0).toBe(0);
});
