import { createHash, randomBytes } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { openS3Bucket } from '../../src/runtime/store/s3-bucket.ts';
import { createS3Store } from '../../src/runtime/store/s3-store.ts';
import { openLocalCache } from '../../src/runtime/store/local-cache.ts';
import { testFolder } from '../helpers/folder.ts';
import { startGateway } from '../helpers/s3-servers.ts';

const rounds = 300;
const largeBytes = 256 * 1024 * 1024;

/** Returns the median and the 99th percentile of the durations of calls one after the other, ms. */
async function measure(call: (round: number) => Promise<unknown>): Promise<string> {
  const durations: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const beganMs = performance.now();
    await call(round);
    durations.push(performance.now() - beganMs);
  }
  const sorted = durations.toSorted((a, b) => a - b);
  const at = (part: number): string => (sorted[Math.floor(part * (rounds - 1))] ?? 0).toFixed(1);
  return `p50 ${at(0.5)} ms, p99 ${at(0.99)} ms`;
}

async function rateOf(bytes: number, work: () => Promise<unknown>): Promise<string> {
  const beganMs = performance.now();
  await work();
  return `${(bytes / 1000 / (performance.now() - beganMs)).toFixed(0)} MB/s`;
}

test('Figures of a bucket on this machine', { timeout: 600_000 }, async ({ skip }) => {
  const folder = testFolder();
  const server = await startGateway(folder);
  if (server === undefined) {
    skip('no versitygw');
    return;
  }
  const bucket = await openS3Bucket(server.settings);
  try {
    const store = createS3Store({ bucket, prefix: 'bench/', scratchFolder: folder });
    const bytes = randomBytes(1024);
    const file = path.join(folder, 'large');
    const content = randomBytes(largeBytes);
    writeFileSync(file, content);
    const sha256 = createHash('sha256').update(content).digest('hex');
    const cache = await openLocalCache({
      folder: path.join(folder, 'cache'),
      maxBytes: 2 * largeBytes,
      keyOf: ({ absolutePath }) => absolutePath,
      fetch: (key, localFile) => store.fetch(key, localFile),
    });
    const use = () => cache.use([{ absolutePath: 'large', sizeBytes: largeBytes, sha256 }], async () => undefined);
    const figures = {
      create: await measure((round) => store.create(`object ${round}`, bytes)),
      get: await measure((round) => store.get(`object ${round}`)),
      replaceAny: await measure((round) => store.replace(`object ${round}`, bytes, 'any')),
      list: await measure(() => store.list('')),
      upload: await rateOf(largeBytes, () => store.upload('large', file, { sha256 })),
      fetch: await rateOf(largeBytes, () => store.fetch('large', path.join(folder, 'fetched'))),
      fetchVerified: await rateOf(largeBytes, use),
      cached: await measure(use),
    };
    process.stderr.write(`${JSON.stringify(figures, undefined, 2)}\n`);
    await cache.close();
    expect((await store.list('')).length).toBe(rounds + 1);
  } finally {
    bucket.close();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
