import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import { beforeEach, expect, test } from 'vitest';
import { backUpStreamMetadata, restoreStreamMetadata } from '../../../src/stream/stream-metadata-backup.ts';
import { openPublisher } from '../../../src/stream/publisher.ts';
import { streamName } from '../../../src/stream/stream.ts';
import { ensureStream } from '../../../src/stream/stream-admin.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { silentLogger, startTestNats, type TestNats } from '../../helpers/nats.ts';

beforeEach(oneTestIn(2));

const streamFolder = (nats: TestNats): string =>
  path.join(nats.folder, 'store', 'jetstream', '$G', 'streams', streamName);
const read = (nats: TestNats, name: string): string => readFileSync(path.join(streamFolder(nats), name), 'utf8');

/** A stopped server whose stream has a message, and was changed after its description was kept. */
async function stopInChange(nats: TestNats): Promise<Record<'before' | 'after', { inf: string; sum: string }>> {
  const publisher = openPublisher(await nats.connect());
  await publisher.publish(Buffer.from('{}\n'), 5000);
  await backUpStreamMetadata(nats.folder, silentLogger);
  const before = { inf: read(nats, 'meta.inf'), sum: read(nats, 'meta.sum') };
  const manager = await jetstreamManager((await nats.connect()).nats);
  const { config } = await manager.streams.info(streamName);
  await manager.streams.update(streamName, { ...config, description: 'changed' });
  await nats.kill();
  return { before, after: { inf: read(nats, 'meta.inf'), sum: read(nats, 'meta.sum') } };
}

async function readStream(nats: TestNats): Promise<{ messages: number; description: string | undefined }> {
  const manager = await jetstreamManager((await nats.connect()).nats);
  const { state, config } = await manager.streams.info(streamName);
  return { messages: state.messages, description: config.description };
}

test.for([
  { how: 'between its two files', cut: { inf: 'after', sum: 'before' } },
  { how: 'in the first of them', cut: { inf: 'torn', sum: 'before' } },
  { how: 'before the first has a byte', cut: { inf: 'empty', sum: 'before' } },
  { how: 'in the second of them', cut: { inf: 'after', sum: 'torn' } },
] as const)('A kill in a change of the stream, $how, leaves every message in reach', async ({ cut }) => {
  const nats = await startTestNats();
  try {
    const { before, after } = await stopInChange(nats);
    expect(after).not.toEqual(before);
    for (const part of ['inf', 'sum'] as const) {
      const state = cut[part];
      const text = state === 'empty' ? '' : state === 'torn' ? after[part].slice(0, 9) : { before, after }[state][part];
      writeFileSync(path.join(streamFolder(nats), `meta.${part}`), text);
    }
    await nats.restart();
    expect(await readStream(nats)).toEqual({ messages: 1, description: undefined });
  } finally {
    await nats.stop();
  }
});

test('A complete change of the stream stays, even if its copy was not kept before a kill', async () => {
  const nats = await startTestNats();
  try {
    await stopInChange(nats);
    await nats.restart();
    expect(await readStream(nats)).toEqual({ messages: 1, description: 'changed' });
  } finally {
    await nats.stop();
  }
});

test.for([
  { when: 'before its checksum', gone: ['meta.sum'] },
  { when: 'before its description', gone: ['meta.sum', 'meta.inf'] },
])('A kill in the creation of a stream, $when, leaves a server in which it can be created again', async ({ gone }) => {
  const nats = await startTestNats();
  try {
    await nats.kill();
    for (const name of gone) rmSync(path.join(streamFolder(nats), name));
    await nats.restart();
    await ensureStream(await nats.connect(), { maxBytes: 1024 * 1024 });
    expect(await readStream(nats)).toEqual({ messages: 0, description: undefined });
  } finally {
    await nats.stop();
  }
});

test('The description of another stream of that name is not put in the place of a damaged one, and the start fails soon', async () => {
  const nats = await startTestNats();
  try {
    const { before } = await stopInChange(nats);
    const other = JSON.stringify({ ...(JSON.parse(before.inf) as object), created: '2020-01-01T00:00:00Z' });
    writeFileSync(path.join(streamFolder(nats), 'meta.inf'), other);
    await restoreStreamMetadata(nats.folder, silentLogger);
    expect(read(nats, 'meta.inf')).toBe(other);
    // It says that it listens: the limit for the reading of a large store, as long as this test's, is not waited for.
    await expect(nats.restart()).rejects.toMatchObject({
      code: 'start_failed',
      message: expect.stringContaining('checksums do not match') as string,
    });
  } finally {
    await nats.stop();
  }
});
