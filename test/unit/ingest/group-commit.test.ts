import { once } from 'node:events';
import { expect, test } from 'vitest';
import { createGroupCommit, type GroupCommit } from '../../../src/ingest/group-commit.ts';
import { createUnavailability } from '../../../src/ingest/unavailability.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import type { ReceiptStatement } from '../../../src/receipts/receipt.ts';
import type { SignReceipts } from '../../../src/ingest/receipts.ts';
import { maxMessageBytes } from '../../../src/stream/stream.ts';

/** A broker that acknowledges on demand, like one with a slow disk. */
function startHeldBroker(signReceipts?: SignReceipts): {
  readonly groups: GroupCommit;
  readonly published: Buffer[];
  readonly release: () => void;
} {
  const published: Buffer[] = [];
  const hold = new AbortController();
  const held = once(hold.signal, 'abort');
  const publisher = {
    async publish(payload: Uint8Array) {
      published.push(Buffer.from(payload));
      if (!hold.signal.aborted) await held;
      return { stream: 'TEST', sequence: published.length };
    },
    ping: () => Promise.resolve(),
    close: () => Promise.resolve(),
  };
  const dependencies = {
    publisher,
    logger: createLogger('silent'),
    onGroup: () => undefined,
    isDiskLow: () => false,
    unavailability: createUnavailability(() => false),
    signReceipts,
  };
  return {
    groups: createGroupCommit(dependencies, { maxWaitingBytes: 8 * 1024 * 1024, answerWithinMs: 60_000 }),
    published,
    release: () => hold.abort(),
  };
}

const lineOf = (n: number): Buffer => Buffer.from(`${String(n).padStart(10_000, 'x')}\n`);

test('A group stays below the size of one message, however much waits, and no line is left out, doubled or reordered', async () => {
  const { groups, published, release } = startHeldBroker();
  const lines = Array.from({ length: 3 * Math.ceil(maxMessageBytes / 10_001) }, (_, n) => lineOf(n));
  const answers = lines.map((line) => groups.append(line));
  await new Promise((resolve) => void setImmediate(resolve));
  release();
  expect(new Set((await Promise.all(answers)).map(({ state }) => state))).toEqual(new Set(['stored']));
  expect(published.map(({ length }) => length).filter((length) => length > maxMessageBytes)).toEqual([]);
  expect(published.length).toBeLessThanOrEqual(5);
  expect(Buffer.concat(published).equals(Buffer.concat(lines))).toBe(true);
  await groups.drain();
});

test('Lines of exactly the size of a message are sent alone', async () => {
  const { groups, published, release } = startHeldBroker();
  const answers = [
    groups.append(lineOf(1)),
    groups.append(Buffer.alloc(maxMessageBytes, 'y')),
    groups.append(lineOf(2)),
  ];
  release();
  await Promise.all(answers);
  expect(published.map(({ length }) => length)).toEqual([10_001, maxMessageBytes, 10_001]);
  await groups.drain();
});

test('Lines that do not fit into the waiting queue are refused at once, and those that wait there are stored', async () => {
  const { groups, published, release } = startHeldBroker();
  const first = groups.append(lineOf(0));
  await new Promise((resolve) => void setImmediate(resolve));
  const waiting = Array.from({ length: 838 }, (_, n) => groups.append(lineOf(n)));
  expect(groups.waitingBytes()).toBeLessThanOrEqual(8 * 1024 * 1024);
  expect(await Promise.race([groups.append(lineOf(999)), Promise.resolve({ state: 'waits' })])).toMatchObject({
    state: 'refused',
  });
  release();
  expect(new Set((await Promise.all([first, ...waiting])).map(({ state }) => state))).toEqual(new Set(['stored']));
  expect(published.reduce((sum, { length }) => sum + length, 0)).toBe(839 * 10_001);
  await groups.drain();
});

test('Lines that the broker does not allow are refused at once, and accepted as soon as it allows them', async () => {
  let isAllowed = false;
  const publisher = {
    publish: async () => {
      if (!isAllowed) throw new AppError('broker_refused', 'publish: the broker denies it');
      return { stream: 'TEST', sequence: 1 };
    },
    ping: () => Promise.resolve(),
    close: () => Promise.resolve(),
  };
  const unavailability = createUnavailability(() => false);
  const groups = createGroupCommit(
    { publisher, logger: createLogger('silent'), onGroup: () => undefined, isDiskLow: () => false, unavailability },
    { maxWaitingBytes: 1024, answerWithinMs: 3_600_000 },
  );
  expect(await groups.append(Buffer.from('a\n'))).toEqual({
    state: 'refused',
    detail: 'not stored: the broker denies it',
  });
  // The connection reports it, in the broker's words.
  expect(unavailability.problems()).toEqual([]);
  isAllowed = true;
  expect(await groups.append(Buffer.from('a\n'))).toEqual({ state: 'stored' });
  await groups.drain();
});

test('A stored request is acknowledged even if its receipt cannot be signed', async () => {
  const { groups, release } = startHeldBroker(() => {
    throw new Error('no such key');
  });
  release();
  for (let n = 0; n < 3; n += 1)
    expect(await groups.append(lineOf(n), {} as ReceiptStatement)).toEqual({ state: 'stored', receipt: undefined });
  await groups.drain();
});
