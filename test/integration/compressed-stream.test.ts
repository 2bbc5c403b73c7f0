import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { headers } from '@nats-io/transport-node';
import { jetstreamManager } from '@nats-io/jetstream';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { createEventFinder } from '../../src/event-lookup/finder.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { openReader } from '../../src/stream/reader.ts';
import { readBacklog } from '../../src/stream/read-backlog.ts';
import { eventSubject, streamName } from '../../src/stream/stream.ts';
import { backUp, expectEvents, restore } from '../helpers/backup.ts';
import { testFolder } from '../helpers/folder.ts';
import { oneTestIn } from '../helpers/in-turn.ts';
import { eventLine, readTotals, startTestCompact } from '../helpers/lake.ts';
import { startTestNats } from '../helpers/nats.ts';
import { waitFor } from '../helpers/wait.ts';

beforeEach(oneTestIn(2));

const eventsOfMessage = 20;

/** A real broker and a folder with a lake. */
async function openScene() {
  const nats = await startTestNats();
  onTestFinished(() => nats.stop());
  const root = testFolder();
  const [data, copy, backup] = [path.join(root, 'data'), path.join(root, 'copy'), path.join(root, 'backup')];
  const connection = await nats.connect();
  const manager = await jetstreamManager(connection.nats);
  const openStream = async () => openReader(await nats.connect());

  /** Publishes messages of events, compressed or not. Returns the ids of the events. */
  async function publish(compression: 'on' | 'off', messages = 1): Promise<string[]> {
    const publisher = openPublisher(connection, undefined, compression);
    const ids: string[] = [];
    for (let n = 0; n < messages; n += 1) {
      const lines = Array.from({ length: eventsOfMessage }, () => eventLine());
      const bytes = Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
      const { sequence, compressedBytes } = await publisher.publish(bytes, 5000);
      const stored = await manager.streams.getMessage(streamName, { seq: sequence });
      expect(stored?.data.length).toBe(compressedBytes ?? bytes.length);
      expect(stored?.header.get('Tributary-Brotli')).toBe(compression === 'on' ? String(bytes.length) : '');
      ids.push(...lines.map((line) => String(line['event_id'])));
    }
    return ids;
  }

  /** Publishes bytes as another client of the broker does. */
  async function publishForeign(bytes: string, size?: string): Promise<void> {
    const given = headers();
    if (size !== undefined) given.set('Tributary-Brotli', size);
    connection.nats.publish(eventSubject, bytes, { headers: given });
    await connection.nats.flush();
  }

  /** Publishes a message whose header the client of the service cannot parse. */
  async function publishMalformed(bytes: string): Promise<void> {
    const { user, password } = nats.current().address;
    const socket = connect(Number(new URL(nats.current().url).port), '127.0.0.1');
    const head = 'NATS/1.0\r\nno name: 1\r\n\r\n';
    const options = JSON.stringify({ user, pass: password, headers: true, verbose: false });
    const sizes = `${head.length} ${head.length + bytes.length}`;
    socket.write(`CONNECT ${options}\r\nHPUB ${eventSubject} ${sizes}\r\n${head}${bytes}\r\nPING\r\n`);
    for (let text = ''; !text.includes('PONG');) text += String(await once(socket, 'data'));
    socket.destroy();
  }

  /** Lets a compactor commit the whole stream. Returns the faults that it reported. */
  async function takeIn(folder = data): Promise<unknown> {
    const reader = await openStream();
    const compactor = await startTestCompact(folder, reader);
    await waitFor('the stream is committed', async () => {
      const { lake } = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
      return lake?.epoch?.position === (await reader.state()).lastSequence;
    });
    const { streamFaults } = compactor.facts();
    await compactor.stop();
    await reader.close();
    return streamFaults;
  }

  return { connection, data, copy, backup, openStream, publish, publishForeign, publishMalformed, takeIn };
}

test('A stream of plain and compressed messages is in the lake once, and compression can be changed at any time', async () => {
  const { data, publish, takeIn } = await openScene();
  const ids = await publish('off', 2);
  expect(await takeIn()).toEqual([]);
  // The anchor is plain, and what follows is compressed; then the other way around.
  ids.push(...(await publish('on', 2)));
  expect(await takeIn()).toEqual([]);
  ids.push(...(await publish('off')), ...(await publish('on')), ...(await publish('off')));
  expect(await takeIn()).toEqual([]);
  await expectEvents(data, ids);
});

test('Damaged and foreign messages become failed events, and no message around them is lost', async () => {
  const { data, publish, publishForeign, publishMalformed, takeIn } = await openScene();
  const ids = await publish('on');
  await publishForeign('\nnot brotli', '5000');
  ids.push(...(await publish('on')));
  await publishForeign('a bogus size', 'many');
  await publishForeign('no event');
  await publishMalformed('malformed');
  ids.push(...(await publish('off')));
  expect(await takeIn()).toEqual([]);
  await expectEvents(data, ids);
  expect(await readTotals(path.join(data, 'lake'))).toMatchObject({ stored: ids.length, failed: 4, repeats: 0 });
  const { failed } = lakePaths(path.join(data, 'lake'));
  const kept = readdirSync(failed).map((name) => readFileSync(path.join(failed, name), 'utf8'));
  for (const stored of ['\nnot brotli', 'a bogus size'])
    expect(kept.join('')).toContain(Buffer.from(stored).toString('base64'));
  for (const line of ['no event', 'malformed']) expect(kept.join('')).toContain(line);
});

test('A backup has the compressed backlog, and its restore stores every event once and continues with the stream', async () => {
  const { data, copy, backup, openStream, publish, takeIn } = await openScene();
  const ids = await publish('on', 2);
  await takeIn();
  ids.push(...(await publish('on', 2)), ...(await publish('off')), ...(await publish('on')));
  await backUp(data, backup, openStream);
  await restore(backup, copy);
  await expectEvents(copy, ids);
  ids.push(...(await publish('on')));
  expect(await takeIn(copy)).toEqual([]);
  await expectEvents(copy, ids);
});

test('An event that is not in the lake yet is found in a compressed message', async () => {
  const { connection, data, publish, publishForeign, publishMalformed, takeIn } = await openScene();
  const stored = await publish('on');
  await takeIn();
  const waiting = [...(await publish('on')), ...(await publish('off'))];
  await publishForeign('not brotli', '5000');
  await publishMalformed('malformed');
  const last = await publish('on');
  const finder = createEventFinder({
    lakeDir: path.join(data, 'lake'),
    indexDir: path.join(data, 'event-index'),
    workDir: path.join(testFolder(), 'find'),
    readBacklog: (from, limits, onMessage) => readBacklog(connection, { ...from, streamName }, limits, onMessage),
  });
  onTestFinished(() => finder.close());
  const find = async (eventId = '') => {
    const target = { eventId, idApp: 1 };
    return await finder.find({ target, idApps: [1], deadlineMs: performance.now() + 20_000 });
  };
  expect(await find(stored[0])).toMatchObject({ state: 'in_lake' });
  for (const id of [waiting[0], waiting.at(-1), last.at(-1)])
    expect(await find(id)).toMatchObject({ state: 'in_stream', events: [{ eventId: id }] });
});
