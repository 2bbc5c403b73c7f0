import { readFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { type Batch, createPrefetcher } from '../../../src/compact/batch/pull-batch.ts';
import { openPublisher } from '../../../src/stream/publisher.ts';
import { openReader } from '../../../src/stream/reader.ts';
import { testFolder } from '../../helpers/folder.ts';
import { startTestNats } from '../../helpers/nats.ts';

const limits = { maxBytes: 1 << 20, maxRows: 3, maxAgeMs: 500 };

/** Opens a puller of a stream with one letter per message. */
async function openPuller() {
  const nats = await startTestNats();
  onTestFinished(() => nats.stop());
  const publisher = openPublisher(await nats.connect());
  const reader = await openReader(await nats.connect());
  const aborter = new AbortController();
  const puller = createPrefetcher(reader, testFolder(), 'spool', aborter.signal);
  onTestFinished(() => puller.stop());
  const publish = async (letters: string): Promise<void> => {
    for (const letter of letters) await publisher.publish(Buffer.from(`${letter}\n`), 5000);
  };
  return { puller, publish, aborter };
}

const lettersOf = (batch: Batch | undefined): string | undefined =>
  batch && readFileSync(batch.file, 'utf8').replaceAll('\n', '');

test('A batch that was pulled ahead is the next one, and leaves the previous one unchanged', async () => {
  const { puller, publish } = await openPuller();
  await publish('abcdef');
  const first = await puller.pull({ appId: 'life', position: 0 }, { ...limits, lastSequence: 3 });
  puller.prefetch({ appId: 'life', position: 3 }, limits);
  const second = await puller.pull({ appId: 'life', position: 3 }, limits);
  expect([first, second].map(lettersOf)).toEqual(['abc', 'def']);
  expect(second).toMatchObject({ firstSequence: 4, lastSequence: 6, messages: 3, events: 3 });
});

test('A batch that was pulled ahead after another position, or in another epoch of the stream, is pulled again', async () => {
  const { puller, publish } = await openPuller();
  await publish('abcdef');
  puller.prefetch({ appId: 'life', position: 3 }, limits);
  expect(lettersOf(await puller.pull({ appId: 'life', position: 0 }, { ...limits, lastSequence: 3 }))).toBe('abc');
  puller.prefetch({ appId: 'life', position: 3 }, { ...limits, lastSequence: 4 });
  expect(lettersOf(await puller.pull({ appId: 'next life', position: 3 }, limits))).toBe('def');
});

test('A pull ahead that waits for messages ends with the puller, and with its signal', async () => {
  const { puller, publish, aborter } = await openPuller();
  puller.prefetch({ appId: 'life', position: 0 }, limits);
  await puller.stop();
  await publish('abc');
  expect(lettersOf(await puller.pull({ appId: 'life', position: 0 }, limits))).toBe('abc');
  puller.prefetch({ appId: 'life', position: 3 }, limits);
  aborter.abort();
  expect(await puller.pull({ appId: 'life', position: 3 }, limits)).toBeUndefined();
});
