import { readFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { type Batch, type BatchLimits, createPrefetcher } from '../../../src/compact/batch/pull-batch.ts';
import { compressLines } from '../../../src/stream/message-compression.ts';
import { hashMessage } from '../../../src/stream/stream.ts';
import { testFolder } from '../../helpers/folder.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';

const unlimited: BatchLimits = { maxBytes: 2 ** 27, maxRows: 1_000_000, maxAgeMs: 20 };

/** Returns lines that differ, so that they compress about as events do. */
const linesOf = (first: number, count: number): Buffer =>
  Buffer.from(
    Array.from({ length: count }, (_, n) => `{"event":${(first + n) * 7919},"name":"level_start"}\n`).join(''),
  );

function openPuller() {
  const stream = createMemoryStream();
  const puller = createPrefetcher(stream, testFolder(), 'spool', new AbortController().signal);
  onTestFinished(() => puller.stop());
  const pull = (position: number, limits: Partial<BatchLimits> = {}) =>
    puller.pull({ appId: 'life', position }, { ...unlimited, ...limits });
  const publish = async (lines: Buffer): Promise<Uint8Array> => {
    const payload = await compressLines(lines);
    if (payload === undefined) throw new Error('the lines are too short');
    stream.publishRaw(payload, lines.length);
    return payload;
  };
  return { stream, pull, publish };
}

const tracesOf = (message: number): string[] => Array.from({ length: 16 }, (_, n) => `${message} ${n}`);
const textOf = (batch: Batch | undefined): string => (batch === undefined ? '' : readFileSync(batch.file, 'utf8'));

test('A batch of plain and compressed messages has their lines in order; its hash is of the stored bytes', async () => {
  const { stream, publish, pull } = openPuller();
  const parts = [linesOf(0, 3), linesOf(3, 500), linesOf(503, 2), linesOf(505, 1000)];
  stream.publishRaw(parts[0] ?? '');
  await publish(parts[1] ?? Buffer.of());
  stream.publishRaw(parts[2] ?? '');
  const last = await publish(parts[3] ?? Buffer.of());
  const batch = await pull(0);
  expect(textOf(batch)).toBe(Buffer.concat(parts).toString());
  const bytes = Buffer.concat(parts).length;
  expect(batch).toMatchObject({ messages: 4, events: 1505, bytes, lastSequence: 4, lastHash: hashMessage(last) });
});

test('A damaged message is one line of its batch, and the messages around it are read', async () => {
  const { stream, publish, pull } = openPuller();
  const [before, after] = [linesOf(0, 40), linesOf(40, 40)];
  await publish(before);
  stream.publishRaw(Buffer.from('\n\nnot brotli'), 5000);
  await publish(after);
  const stored = Buffer.from('\n\nnot brotli').toString('base64');
  const batch = await pull(0);
  expect(textOf(batch)).toBe(
    `${before.toString()}damaged message 2 of the stream, compressed by brotli: ${stored}\n${after.toString()}`,
  );
  expect(batch).toMatchObject({ messages: 3, events: 81 });
});

test('Messages that expand beyond the limits are divided into batches, each message in one of them', async () => {
  const { publish, pull } = openPuller();
  const parts = Array.from({ length: 40 }, (_, n) => linesOf(n * 2000, 2000));
  for (const part of parts) await publish(part);
  const most = Math.max(...parts.map(({ length }) => length));
  for (const limits of [{ maxBytes: 3 * most }, { maxBytes: 1 }, { maxRows: 5000 }]) {
    const batches: Batch[] = [];
    let text = '';
    for (let position = 0; position < parts.length; position = batches.at(-1)?.lastSequence ?? Number.NaN) {
      const batch = await pull(position, limits);
      text += textOf(batch);
      if (batch !== undefined) batches.push(batch);
    }
    expect(text === Buffer.concat(parts).toString(), JSON.stringify(limits)).toBe(true);
    const { maxBytes = Number.POSITIVE_INFINITY } = limits;
    expect(batches.filter(({ bytes, messages }) => bytes > maxBytes && messages > 1)).toEqual([]);
  }
});

test('The lines of a pull that expands to many times its size are stored in parts, up to the limit of the batch', async () => {
  const { publish, pull } = openPuller();
  const part = Buffer.alloc(900_000, `{"event":"${'x'.repeat(86)}"}\n`);
  for (let n = 0; n < 60; n += 1) await publish(part);
  const batch = await pull(0, { maxBytes: 20_000_000, maxAgeMs: 60_000 });
  // One message more than the limit, at most.
  expect(batch?.bytes).toBeGreaterThan(19_000_000);
  expect(batch?.bytes).toBeLessThan(21_000_000);
  expect(batch?.messages).toBe((batch?.bytes ?? 0) / part.length);
});

test('A batch has the traces of its messages, a bounded number', async () => {
  const { stream, pull } = openPuller();
  for (let message = 1; message <= 70; message += 1)
    stream.publishRaw(linesOf(message, 1), undefined, message === 2 ? undefined : tracesOf(message));
  const [one, three] = [tracesOf(1), tracesOf(3)];
  const batch = await pull(0);
  expect(batch?.traceparents?.slice(0, 32)).toEqual([...one, ...three]);
  expect(batch?.traceparents).toHaveLength(1024);
});

test('A batch without traced requests has no member for them', async () => {
  const { stream, pull } = openPuller();
  stream.publishRaw(linesOf(0, 1));
  expect(Object.keys((await pull(0)) ?? {})).not.toContain('traceparents');
});
