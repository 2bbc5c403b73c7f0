import path from 'node:path';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { totalsOf, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { testFolder } from '../helpers/folder.ts';
import { oneTestIn } from '../helpers/in-turn.ts';
import { startTestCluster } from '../helpers/nats-cluster.ts';
import { addTestApp } from '../helpers/service-access.ts';
import { startTestService } from '../helpers/service.ts';

beforeEach(oneTestIn(2));

const eventsOfRequest = 20;

interface Status {
  readonly stream: { readonly bytes: number; readonly estimatedLinesBytes: number };
  readonly services: readonly { readonly facts: Readonly<Record<string, { readonly published?: Sizes }>> }[];
}

interface Sizes {
  readonly bytes: number;
  readonly storedBytes: number;
}

/** Starts a service, sends events, and waits until the lake has them. */
async function startAndSend(settings: Readonly<Record<string, string>>) {
  const dataDir = path.join(testFolder(), 'data');
  const token = await addTestApp(dataDir);
  const service = await startTestService({ dataDir, settings });
  onTestFinished(() => service.destroy());
  const events = Array.from({ length: eventsOfRequest }, (_, n) => ({
    customUserId: `user ${n}`,
    customEventName: 'level_start',
  }));
  const response = await fetch(`${service.s2s}/v1/customEventBatch/?idApp=1`, {
    method: 'POST',
    headers: { authorization: token },
    body: JSON.stringify(events),
  });
  expect(response.status).toBe(200);
  await waitUntilWorkedOff(service);
  expect(await totalsOf(dataDir)).toMatchObject({ stored: eventsOfRequest, failed: 0 });
  await expect.poll(async () => sizesOf(await service.status()).bytes, { timeout: 20_000 }).toBeGreaterThan(0);
  return { service, status: await service.status() };
}

function sizesOf(status: unknown): Sizes {
  const [service] = (status as Status).services;
  const [sizes] = Object.values(service?.facts ?? {}).flatMap(({ published }) => published ?? []);
  return sizes ?? { bytes: 0, storedBytes: 0 };
}

const estimateOf = ({ stream }: Status): number => stream.estimatedLinesBytes / stream.bytes;

it('Messages of a stream with several copies are compressed by default, and the status shows both sizes', async () => {
  const cluster = await startTestCluster();
  onTestFinished(() => cluster.stop());
  const { service, status } = await startAndSend({
    TRIBUTARY_NATS_URL: cluster.url,
    TRIBUTARY_STREAM_MAX_BYTES: String(2 ** 28),
  });
  const { bytes, storedBytes } = sizesOf(status);
  expect(storedBytes).toBeLessThan(bytes / 2);
  expect(estimateOf(status as unknown as Status)).toBeCloseTo(bytes / storedBytes, 1);
  const metrics = await (await fetch(`${service.ops}/metrics`)).text();
  expect(metrics).toMatch(new RegExp(`^tributary_ingest_stored_bytes_total\\S* ${storedBytes}$`, 'm'));
}, 240_000);

it.each([
  ['stored as they are by default', {}, false],
  ['compressed if the setting is on', { TRIBUTARY_STREAM_COMPRESSION: 'on' }, true],
])(
  'Messages of a stream with one copy are %s',
  async (_case, settings, isSmaller) => {
    const { bytes, storedBytes } = sizesOf((await startAndSend(settings)).status);
    expect(storedBytes < bytes).toBe(isSmaller);
  },
  120_000,
);
