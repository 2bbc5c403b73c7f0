import { jetstreamManager } from '@nats-io/jetstream';
import { headers } from '@nats-io/transport-node';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { createRandom } from '../../../src/demo/random.ts';
import { openConnection } from '../../../src/stream/connection.ts';
import { openPublisher } from '../../../src/stream/publisher.ts';
import { openReader } from '../../../src/stream/reader.ts';
import {
  eventSubject,
  maxMessageBytes,
  streamName,
  type StreamMessage,
  type StreamReader,
} from '../../../src/stream/stream.ts';
import { startBrokerProxy, type BrokerProxy } from '../../helpers/broker-proxy.ts';
import { silentLogger, startTestNats, type TestNats } from '../../helpers/nats.ts';
import { waitFor } from '../../helpers/wait.ts';

const mebibyte = 1024 * 1024;
/** Published by another client: empty, and with headers. */
const foreign = ['', 'with headers'].map((text) => Buffer.from(text));
const payloads = [
  ...foreign.map(String),
  '\n',
  'MSG tributary.events 1 5\r\nhello\r\n',
  '\r\n\r\n',
  'HMSG _INBOX.x 1 16 16\r\nNATS/1.0 409\r\n\r\n\r\n',
  ...Array.from({ length: 30 }, (_, index) => `${index}\r\n`.repeat(30_000)),
  'x'.repeat(maxMessageBytes),
].map((text) => Buffer.from(text).subarray(0, maxMessageBytes));

let nats: TestNats;
beforeAll(async () => {
  nats = await startTestNats();
  const connection = await nats.connect();
  const others = headers();
  others.set('Status', 'NATS/1.0 409 Batch Completed');
  for (const payload of foreign)
    await connection.nats.request(eventSubject, payload, { timeout: 5000, headers: others });
  const publisher = openPublisher(connection);
  for (const payload of payloads.slice(foreign.length)) await publisher.publish(payload, 5000);
});
afterAll(() => nats.stop());

/** A reader whose connections go through a proxy: the first is the client's own, those after it are for pulls. */
async function openThroughProxy(): Promise<{ reader: StreamReader; proxy: BrokerProxy }> {
  const { address, url } = nats.current();
  const proxy = await startBrokerProxy(Number(new URL(url).port));
  const connection = await openConnection({
    url: `nats://127.0.0.1:${proxy.port}`,
    user: address.user,
    password: address.password,
    name: 'test',
    logger: silentLogger,
  });
  onTestFinished(() => connection.close());
  const reader = await openReader(connection);
  onTestFinished(() => reader.close());
  return { reader, proxy };
}

/** More pulls than any of these tests needs. */
const mostPulls = 40;

/** Pulls until all messages are there, or nothing more can be hoped for. */
async function pullAll(reader: StreamReader, waitMs = 1500): Promise<StreamMessage[]> {
  const all: StreamMessage[] = [];
  for (let pulls = 0; pulls < mostPulls && all.length < payloads.length; pulls += 1)
    all.push(...(await reader.pull(all.length, { maxBytes: 4 * mebibyte, waitMs })));
  return all;
}

/** Reports whether these are all messages, in order, each once and byte for byte. */
function areAll(messages: readonly StreamMessage[]): boolean {
  const isNext = ({ sequence, payload }: StreamMessage, index: number): boolean =>
    sequence === index + 1 && payloads[index]?.equals(payload) === true;
  return messages.length === payloads.length && messages.every(isNext);
}

test('Messages arrive as they were published, regardless of their bytes and of how the network splits them', async () => {
  const { reader, proxy } = await openThroughProxy();
  const random = createRandom(7);
  proxy.trouble = () => ({ kind: 'pieces', bytes: () => random.pick([1, 3, 50, 4000, 70_000]) });
  expect(areAll(await pullAll(reader))).toBe(true);
});

test('A connection that breaks in the middle of a message costs no message, and none comes twice', async () => {
  const { reader, proxy } = await openThroughProxy();
  const random = createRandom(8);
  proxy.trouble = (turn) =>
    turn > 0 && turn < 12 ? { kind: 'cut', afterBytes: random.integer(1, 3 * mebibyte) } : { kind: 'none' };
  const messages: StreamMessage[] = [];
  while (messages.length < payloads.length) {
    const pulling = reader.pull(messages.length, { maxBytes: 4 * mebibyte, waitMs: 1500 });
    messages.push(...(await pulling.catch(() => [])));
  }
  expect(areAll(messages)).toBe(true);
  expect(proxy.connections()).toBeGreaterThan(4);
});

test('A pull whose connection has gone silent ends in its time, and the next has a new connection', async () => {
  const { reader, proxy } = await openThroughProxy();
  proxy.trouble = (turn) => (turn === 1 ? { kind: 'silence', afterBytes: mebibyte } : { kind: 'none' });
  expect(areAll(await pullAll(reader, 300))).toBe(true);
  expect(proxy.connections()).toBeGreaterThan(2);
});

test('Payloads are in the memory that a pull was given, and in other memory once that is full', async () => {
  const { reader } = await openThroughProxy();
  const into = Buffer.alloc(2 * mebibyte);
  const messages = await reader.pull(0, { maxBytes: 4 * mebibyte, waitMs: 5000, into });
  const isInside = messages.map(({ payload }) => payload.buffer === into.buffer);
  expect([isInside[1], isInside.at(-1)]).toEqual([true, false]);
  expect(messages.every(({ payload }, index) => payloads[index]?.equals(payload))).toBe(true);
});

test('A reader that is closed leaves no connection and no consumer behind', async () => {
  const { reader, proxy } = await openThroughProxy();
  const manager = await jetstreamManager((await nats.connect()).nats);
  const consumers = async (): Promise<number> => (await manager.consumers.list(streamName).next()).length;
  const before = await consumers();
  await reader.pull(0, { maxBytes: mebibyte, waitMs: 1000 });
  expect([await consumers(), proxy.open()]).toEqual([before + 1, 2]);
  await reader.close();
  await waitFor('the connection for pulls is closed', () => proxy.open() === 1);
  expect(await consumers()).toBe(before);
});
