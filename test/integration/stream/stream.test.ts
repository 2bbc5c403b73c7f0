import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { jetstreamManager, DiscardPolicy, RetentionPolicy, StorageType } from '@nats-io/jetstream';
import { openPublisher } from '../../../src/stream/publisher.ts';
import { openReader } from '../../../src/stream/reader.ts';
import { eventSubject, maxMessageBytes, streamName, type StreamMessage } from '../../../src/stream/stream.ts';
import { ensureStream } from '../../../src/stream/stream-admin.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { startTestNats, type TestNats, type TestNatsOptions } from '../../helpers/nats.ts';
import { waitFor, within } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

const mebibyte = 1024 * 1024;

async function start(options: TestNatsOptions = {}): Promise<TestNats> {
  const nats = await startTestNats(options);
  onTestFinished(() => nats.stop());
  return nats;
}

const text = (message: StreamMessage | undefined): string => Buffer.from(message?.payload ?? []).toString();
const bytes = (value: string): Uint8Array => new TextEncoder().encode(value);

async function publishNumbers(nats: TestNats, first: number, last: number): Promise<void> {
  const publisher = openPublisher(await nats.connect());
  for (let number = first; number <= last; number += 1) await publisher.publish(bytes(String(number)), 5000);
}

describe('the stream', () => {
  it('The stream is created with settings that keep what was acknowledged', async () => {
    const nats = await start({ streamMaxBytes: 64 * mebibyte });
    const { config } = await (await jetstreamManager((await nats.connect()).nats)).streams.info(streamName);
    expect(config).toMatchObject({
      storage: 'file',
      retention: 'limits',
      discard: 'new',
      max_bytes: 64 * mebibyte,
      max_age: 0,
      num_replicas: 1,
      max_msg_size: maxMessageBytes + 4096,
    });
  });

  it('An existing stream keeps its events and gets the new limit', async () => {
    const nats = await start({ streamMaxBytes: 64 * mebibyte });
    await publishNumbers(nats, 1, 3);
    const connection = await nats.connect();
    await ensureStream(connection, { maxBytes: 32 * mebibyte });
    const manager = await jetstreamManager(connection.nats);
    const info = await manager.streams.info(streamName);
    expect(info.config.max_bytes).toBe(32 * mebibyte);
    expect(info.state.messages).toBe(3);
  });

  it('A stream whose settings would lose events is corrected', async () => {
    const nats = await start({ streamMaxBytes: 'none' });
    const connection = await nats.connect();
    const manager = await jetstreamManager(connection.nats);
    await manager.streams.add({
      name: streamName,
      subjects: [eventSubject],
      discard: DiscardPolicy.Old,
      max_bytes: mebibyte,
      max_msgs: 5,
    });
    await ensureStream(connection, { maxBytes: 2 * mebibyte });
    expect((await manager.streams.info(streamName)).config).toMatchObject({
      discard: 'new',
      max_msgs: -1,
      max_bytes: 2 * mebibyte,
    });
  });

  it.each([
    ['a work queue', { retention: RetentionPolicy.Workqueue }],
    ['kept in memory', { storage: StorageType.Memory }],
    ['sealed against purges', { deny_purge: true }],
  ])('A stream is refused when it is %s', async (_, settings) => {
    const nats = await start({ streamMaxBytes: 'none' });
    const connection = await nats.connect();
    await (
      await jetstreamManager(connection.nats)
    ).streams.add({ name: streamName, subjects: [eventSubject], ...settings });
    await expect(ensureStream(connection, { maxBytes: mebibyte })).rejects.toMatchObject({ code: 'broker_unsafe' });
  });
});

describe('the publisher', () => {
  it('The publisher returns growing sequences for messages that are in the stream', async () => {
    const nats = await start();
    const connection = await nats.connect();
    const publisher = openPublisher(connection);
    expect(await publisher.publish(bytes('a'), 5000)).toEqual({ stream: streamName, sequence: 1 });
    expect(await publisher.publish(bytes('b'), 5000)).toEqual({ stream: streamName, sequence: 2 });
    const reader = await openReader(connection);
    expect(text(await reader.findMessage(2))).toBe('b');
  });

  it('The publisher sends a message of the largest size', async () => {
    const nats = await start();
    const connection = await nats.connect();
    await openPublisher(connection).publish(new Uint8Array(maxMessageBytes).fill(120), 5000);
    const reader = await openReader(connection);
    expect((await reader.findMessage(1))?.payload.length).toBe(maxMessageBytes);
  });

  it('The publisher reports that the stream is full, and the stream drops nothing for the message', async () => {
    const nats = await start({ streamMaxBytes: mebibyte });
    const connection = await nats.connect();
    const publisher = openPublisher(connection);
    const message = new Uint8Array(300 * 1024);
    await publisher.publish(message, 5000);
    await publisher.publish(message, 5000);
    await publisher.publish(message, 5000);
    await expect(publisher.publish(message, 5000)).rejects.toMatchObject({ code: 'stream_full', retryable: true });
    expect(await (await openReader(connection)).state()).toMatchObject({
      firstSequence: 1,
      lastSequence: 3,
      messages: 3,
    });
  });

  it('The publisher reports an unknown outcome in time while the broker is stalled', async () => {
    const nats = await start();
    const connection = await nats.connect();
    const publisher = openPublisher(connection);
    await publisher.publish(bytes('1'), 5000);
    nats.signal('SIGSTOP');
    try {
      await expect(publisher.publish(bytes('2'), 200)).rejects.toMatchObject({ code: 'publish_unknown' });
      await expect(publisher.ping(200)).rejects.toMatchObject({ code: 'broker_away' });
    } finally {
      nats.signal('SIGCONT');
    }
    await waitFor('the broker answers', () =>
      publisher.ping(200).then(
        () => true,
        () => false,
      ),
    );
    // Unknown is not failed: here it was stored.
    const reader = await openReader(connection);
    expect((await reader.state()).lastSequence).toBe(2);
  });

  it('The publisher refuses at once while the broker is away, sends nothing late, and resumes when it is back on its port', async () => {
    const nats = await start();
    const connection = await nats.connect();
    const publisher = openPublisher(connection);
    await publisher.publish(bytes('1'), 5000);
    await nats.kill();
    await waitFor('the loss is noticed', () => !connection.isConnected());
    await expect(publisher.publish(bytes('lost'), 60_000)).rejects.toMatchObject({ code: 'broker_away' });
    await nats.restart();
    await waitFor('the connection is back', () => connection.isConnected());
    expect(await publisher.publish(bytes('2'), 5000)).toMatchObject({ sequence: 2 });
  });

  it('The publisher ends the wait of a publish when the connection is closed', async () => {
    const nats = await start();
    const connection = await nats.connect();
    const publisher = openPublisher(connection);
    await publisher.publish(bytes('1'), 5000);
    nats.signal('SIGSTOP');
    const waiting = publisher.publish(bytes('2'), 60_000).catch((error: unknown) => error);
    await connection.close();
    expect(await within('the wait has ended', waiting)).toMatchObject({ code: 'publish_unknown' });
  });

  it('The publisher ends the wait of a publish when the connection is lost', async () => {
    const nats = await start();
    const publisher = openPublisher(await nats.connect());
    await publisher.publish(bytes('1'), 5000);
    nats.signal('SIGSTOP');
    const waiting = publisher.publish(bytes('2'), 60_000).catch((error: unknown) => error);
    await nats.kill();
    expect(await waiting).toMatchObject({ code: 'publish_unknown' });
  });
});

describe('the reader', () => {
  it('The reader pulls the messages after a sequence in order', async () => {
    const nats = await start();
    await publishNumbers(nats, 1, 250);
    const reader = await openReader(await nats.connect());
    const messages = await reader.pull(20, { maxBytes: mebibyte, waitMs: 1000 });
    expect(messages.map((message) => [message.sequence, text(message)])).toEqual(
      Array.from({ length: 230 }, (_, index) => [index + 21, String(index + 21)]),
    );
  });

  it('The reader stops at the requested bytes, and the next pull continues from there', async () => {
    const nats = await start();
    const publisher = openPublisher(await nats.connect());
    for (let number = 0; number < 12; number += 1)
      await publisher.publish(new Uint8Array(500 * 1024).fill(number), 5000);
    const reader = await openReader(await nats.connect());
    const first = await reader.pull(0, { maxBytes: 3 * mebibyte, waitMs: 30_000 });
    expect(first.length).toBeGreaterThanOrEqual(3);
    expect(first.length).toBeLessThan(8);
    const rest = await reader.pull(first.length, { maxBytes: 64 * mebibyte, waitMs: 1500 });
    expect([...first, ...rest].map((message) => message.payload[0])).toEqual(
      Array.from({ length: 12 }, (_, index) => index),
    );
  });

  it('The reader waits for messages that arrive while it pulls', async () => {
    const nats = await start();
    const reader = await openReader(await nats.connect());
    const pulling = reader.pull(0, { maxBytes: mebibyte, waitMs: 1200 });
    await publishNumbers(nats, 1, 3);
    expect((await pulling).map(text)).toEqual(['1', '2', '3']);
  });

  it('The reader misses nothing over many short pulls that are aborted while messages arrive', async () => {
    const nats = await start();
    const reader = await openReader(await nats.connect());
    const publishing = publishNumbers(nats, 1, 400);
    const seen: string[] = [];
    while (seen.length < 400)
      seen.push(...(await reader.pull(seen.length, { maxBytes: mebibyte, waitMs: 15 })).map(text));
    await publishing;
    expect(seen).toEqual(Array.from({ length: 400 }, (_, index) => String(index + 1)));
  });

  it('The reader returns what it has when the signal aborts', async () => {
    const nats = await start();
    await publishNumbers(nats, 1, 2);
    const reader = await openReader(await nats.connect());
    const controller = new AbortController();
    const pulling = reader.pull(0, { maxBytes: mebibyte, waitMs: 600_000, signal: controller.signal });
    setImmediate(() => controller.abort());
    expect((await pulling).length).toBeLessThanOrEqual(2);
  });

  it('The reader resumes after the broker was killed and restarted, and has lost nothing', async () => {
    const nats = await start();
    await publishNumbers(nats, 1, 50);
    const connection = await nats.connect();
    const reader = await openReader(connection);
    expect(await reader.pull(0, { maxBytes: mebibyte, waitMs: 1000 })).toHaveLength(50);
    const before = await reader.state();
    await nats.kill();
    await waitFor('the loss is noticed', () => !connection.isConnected());
    await nats.restart();
    await publishNumbers(nats, 51, 60);
    await waitFor('the connection is back', () => connection.isConnected());
    expect((await reader.pull(50, { maxBytes: mebibyte, waitMs: 1500 })).map(text)).toEqual(
      Array.from({ length: 10 }, (_, index) => String(index + 51)),
    );
    expect((await reader.state()).id).toBe(before.id);
  });

  it('The reader purges below a sequence and keeps the message there', async () => {
    const nats = await start();
    await publishNumbers(nats, 1, 10);
    const reader = await openReader(await nats.connect());
    await reader.purgeBelow(10);
    expect(await reader.state()).toMatchObject({ firstSequence: 10, lastSequence: 10, messages: 1 });
    expect(text(await reader.findMessage(10))).toBe('10');
    expect(await reader.findMessage(9)).toBeUndefined();
    await reader.purgeBelow(10);
    expect(await reader.state()).toMatchObject({ firstSequence: 10, messages: 1 });
  });

  it('The reader reports a gap instead of skipping it', async () => {
    const nats = await start();
    await publishNumbers(nats, 1, 10);
    const reader = await openReader(await nats.connect());
    await reader.purgeBelow(6);
    await expect(reader.pull(2, { maxBytes: mebibyte, waitMs: 1000 })).rejects.toMatchObject({ code: 'stream_gap' });
    expect(await reader.pull(5, { maxBytes: mebibyte, waitMs: 1000 })).toHaveLength(5);
  });

  it("The reader pulls a backlog larger than the broker's limit of pending bytes for one client", async () => {
    const nats = await start({ streamMaxBytes: 120 * mebibyte });
    const publisher = openPublisher(await nats.connect());
    for (let number = 0; number < 110; number += 1)
      await publisher.publish(new Uint8Array(800 * 1024).fill(number), 10_000);
    const reader = await openReader(await nats.connect());
    const messages = await reader.pull(0, { maxBytes: 110 * 800 * 1024 + mebibyte, waitMs: 5000 });
    expect(messages.map((message) => message.payload[0])).toEqual(Array.from({ length: 110 }, (_, index) => index));
  });
});
