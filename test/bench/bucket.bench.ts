import path from 'node:path';
import { readFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { bucketSettings, startTestBroker } from '../helpers/bucket.ts';
import { createExportClient, exportQuery } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { createLedger } from '../helpers/ledger.ts';
import { sendLoad } from '../helpers/load.ts';
import { runCommand, startTestService } from '../helpers/service.ts';
import { startGateway } from '../helpers/s3-servers.ts';
import { waitFor } from '../helpers/wait.ts';
import { median, reportBench } from './bench-report.ts';
import { benchRows, rounds } from './bench-size.ts';

/*
 * Cost of a bucket: the same events through a whole service on a folder, and on versitygw on loopback, in turn. Flushes
 * and seals are those of the compactor's log; the export is a CSV of all rows.
 */
const rows = benchRows(100_000, 300_000);

interface Costs {
  readonly flushMs: number;
  readonly sealMs: number;
  readonly exportMs: number;
  readonly exportAgainMs: number;
}

/** Returns the durations in the log of a service, of lines with a message. */
function durationsOf(logFile: string, message: string): number[] {
  return readFileSync(logFile, 'utf8')
    .split('\n')
    .filter((line) => line.includes(`"msg":"${message}"`))
    .map((line) => (JSON.parse(line) as { readonly durationMs: number }).durationMs);
}

async function measure(storage: Readonly<Record<string, string>>): Promise<Costs> {
  const dataDir = path.join(testFolder(), 'data');
  const settings = {
    ...storage,
    TRIBUTARY_NATS_URL: await startTestBroker(),
    TRIBUTARY_FLUSH_AGE_MS: '1000',
    TRIBUTARY_SEAL_AGE_MS: '2000',
    TRIBUTARY_QUOTA_USER: 'off',
  };
  const command = (...words: readonly string[]) => runCommand([...words, '--data', dataDir], settings);
  const token = String((await command('app', 'add', '1', '--platform', 'web'))['token']);
  const { idUser, secret } = await command('user', 'add', 'analyst', '--account', '1');
  const service = await startTestService({ dataDir, settings });
  onTestFinished(() => service.destroy());
  const load = { s2s: () => service.s2s, idApp: 1, token, random: createRandom(1), clients: 8, batchShare: 1 };
  await sendLoad(createLedger('bench'), rows, load);
  await waitUntilWorkedOff(service);
  await waitFor('all rows are sealed', async () => {
    const { lake } = (await service.status()) as { readonly lake?: { readonly youngFiles?: number } };
    return lake?.youngFiles === 0;
  });
  const client = createExportClient(service, { idUser: String(idUser), secret: String(secret) });
  const exportAll = async (): Promise<number> => {
    const beganMs = performance.now();
    const id = (await client.create(exportQuery('eventId,eventName,customUserId'))) ?? '';
    expect((await client.waitForEnd(id)).status).toBe('Success!');
    return performance.now() - beganMs;
  };
  const exportMs = await exportAll();
  const exportAgainMs = await exportAll();
  await service.stop();
  const log = `${dataDir}.log`;
  return {
    flushMs: median(durationsOf(log, 'flushed')),
    sealMs: median(durationsOf(log, 'sealed')),
    exportMs,
    exportAgainMs,
  };
}

test('The cost of a bucket on loopback', { timeout: 1_800_000 }, async ({ skip }) => {
  const server = await startGateway(testFolder());
  if (server === undefined) {
    skip('no versitygw');
    return;
  }
  onTestFinished(() => server.stop());
  const { endpoint, credentials } = server.settings;
  const inBucket = (round: number) => ({
    ...bucketSettings(endpoint),
    TRIBUTARY_STORAGE_URL: `s3://lake/round-${round}`,
    AWS_ACCESS_KEY_ID: credentials?.accessKeyId ?? '',
    AWS_SECRET_ACCESS_KEY: credentials?.secretAccessKey ?? '',
  });
  for (const [name, value] of Object.entries(inBucket(0))) if (name.startsWith('AWS_')) process.env[name] = value;
  const [folders, buckets]: [Costs[], Costs[]] = [[], []];
  for (let round = 0; round < rounds; round += 1) {
    folders.push(await measure({}));
    buckets.push(await measure(inBucket(round)));
  }
  expect(buckets).toHaveLength(rounds);
  const of = (costs: readonly Costs[], name: keyof Costs): number =>
    Math.round(median(costs.map((cost) => cost[name])));
  const names = ['flushMs', 'sealMs', 'exportMs', 'exportAgainMs'] as const;
  reportBench(
    'bucket',
    ['step', 'folder, ms', 'bucket, ms'],
    names.map((name) => [name.slice(0, -2), String(of(folders, name)), String(of(buckets, name))]),
    { rows, folders, buckets },
  );
});
