import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { bucketSettings, startTestBroker } from '../helpers/bucket.ts';
import { startFakeS3 } from '../helpers/fake-s3.ts';
import { testFolder } from '../helpers/folder.ts';
import { createLedger } from '../helpers/ledger.ts';
import { sendLoad } from '../helpers/load.ts';
import { runCommand, startTestService, type TestService } from '../helpers/service.ts';
import { median, reportBench, sumOf } from './bench-report.ts';
import { benchRows, rounds } from './bench-size.ts';
import { costsBetween, readCosts } from './process-cost.ts';

/*
 * Processor time of an imported event with one and with two hosts of role ingest, which share a bucket and a broker.
 * Each host has the same load, of clients that send batches of 20 with a pause, so that no host is busy.
 */
const eventsOfHost = benchRows(200_000, 1_000_000);
const hostCounts = [1, 2];
const clientsOfHost = 16;
const pauseMs = 40;

async function measure(count: number): Promise<number> {
  const { endpoint } = await startFakeS3();
  const settings = {
    ...bucketSettings(endpoint),
    TRIBUTARY_NATS_URL: await startTestBroker(),
    TRIBUTARY_QUOTA_USER: 'off',
    TRIBUTARY_QUOTA_IP: 'off',
  };
  const folder = testFolder();
  const words = ['app', 'add', '1', '--platform', 'web', '--data', path.join(folder, 'desk')];
  const token = String((await runCommand(words, settings))['token']);
  const hosts: TestService[] = [];
  for (let index = 0; index < count; index += 1) {
    const dataDir = path.join(folder, `ingest-${index}`);
    const host = await startTestService({ dataDir, words: ['--role', 'ingest'], settings });
    onTestFinished(() => host.destroy());
    hosts.push(host);
  }
  const events = eventsOfHost * count;
  let calls = 0;
  const s2s = (): string => hosts[(calls += 1) % count]?.s2s ?? '';
  const load = {
    s2s,
    idApp: 1,
    token,
    random: createRandom(1),
    clients: clientsOfHost * count,
    batchShare: 1,
    leastBatch: 20,
    pauseMs,
  };
  const send = async (name: string, wanted: number): Promise<void> => {
    const ledger = createLedger(name);
    await sendLoad(ledger, wanted, load);
    expect(ledger.totals().acknowledged).toBeGreaterThanOrEqual(wanted);
  };
  // The first events compile the program.
  await send('warm', events / 10);
  const before = hosts.map(readCosts);
  await send('measured', events);
  const seconds = hosts.map(
    (host, index) => costsBetween(before[index] ?? new Map(), readCosts(host)).get('ingest') ?? 0,
  );
  for (const host of hosts) await host.stop();
  return (sumOf(seconds) * 1e6) / events;
}

test('The processor time of an event with one and two import hosts', { timeout: 1_800_000 }, async () => {
  const costs = new Map(hostCounts.map((count): [number, number[]] => [count, []]));
  for (let round = 0; round < rounds; round += 1)
    for (const [count, seconds] of costs) seconds.push(await measure(count));
  const [one = 0] = [...costs.values()].map(median);
  expect(one).toBeGreaterThan(0);
  reportBench(
    'hosts',
    ['import hosts', 'CPU s per million events', 'ratio'],
    [...costs].map(([count, seconds]) => [
      String(count),
      median(seconds).toFixed(2),
      (median(seconds) / one).toFixed(2),
    ]),
    { eventsOfHost, costs: [...costs] },
  );
});
