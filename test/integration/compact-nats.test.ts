import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openPublisher } from '../../src/stream/publisher.ts';
import { openReader } from '../../src/stream/reader.ts';
import { readSnapshot } from '../../src/lake/snapshot.ts';
import { startTestNats, type TestNats } from '../helpers/nats.ts';
import { eventLine, readRows, startTestCompact } from '../helpers/lake.ts';
import { testFolder } from '../helpers/folder.ts';
import { waitFor } from '../helpers/wait.ts';

let nats: TestNats;
beforeAll(async () => {
  nats = await startTestNats();
});
afterAll(() => nats.stop());

function payload(events: number): Buffer {
  return Buffer.from(Array.from({ length: events }, () => `${JSON.stringify(eventLine())}\n`).join(''));
}

test('what a broker acknowledged is in the lake once, through a kill of the broker and restarts of the compactor', async () => {
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
  await waitFor('the publisher is back', () => publisher.publish(payload(100), 1000).then(() => true, () => false));
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
