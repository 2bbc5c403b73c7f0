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
 * Each host has the same load, of clients that send batches of 20 with a pause, so that no host is busy. Two hosts that
 * share nothing show what is due to the machine: two loads at a time on its cores.
 */
const eventsOfHost = benchRows(200_000, 1_000_000);
const setups = [
  { name: '1', hosts: 1, isShared: true },
  { name: '2, one bucket and broker', hosts: 2, isShared: true },
  { name: '2, sharing nothing', hosts: 2, isShared: false },
] as const;
const clientsOfHost = 16;
const pauseMs = 40;

interface Target {
  readonly host: TestService;
  readonly token: string;
}

/** Starts hosts of role ingest on one new bucket and broker, with an app. */
async function startHosts(count: number): Promise<Target[]> {
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
  const hosts: Target[] = [];
  for (let index = 0; index < count; index += 1) {
    const dataDir = path.join(folder, `ingest-${index}`);
    const host = await startTestService({ dataDir, words: ['--role', 'ingest'], settings });
    onTestFinished(() => host.destroy());
    hosts.push({ host, token });
  }
  return hosts;
}

/** Sends an equal number of events to each host. */
async function sendToEach(targets: readonly Target[], name: string, events: number): Promise<void> {
  const send = async ({ host, token }: Target, index: number): Promise<void> => {
    const ledger = createLedger(`${name}-${index}`);
    await sendLoad(ledger, events, {
      s2s: () => host.s2s,
      idApp: 1,
      token,
      random: createRandom(index),
      clients: clientsOfHost,
      batchShare: 1,
      leastBatch: 20,
      pauseMs,
    });
    expect(ledger.totals().acknowledged).toBeGreaterThanOrEqual(events);
  };
  await Promise.all(targets.map(send));
}

/** Returns the processor time of the hosts' processes, seconds per million events. */
async function measure({ hosts: count, isShared }: (typeof setups)[number]): Promise<number> {
  const targets = isShared
    ? await startHosts(count)
    : (await Promise.all(Array.from({ length: count }, () => startHosts(1)))).flat();
  // The first events compile the program.
  await sendToEach(targets, 'warm', eventsOfHost / 10);
  const before = targets.map(({ host }) => readCosts(host));
  await sendToEach(targets, 'measured', eventsOfHost);
  const seconds = targets.map(
    ({ host }, index) => costsBetween(before[index] ?? new Map(), readCosts(host)).get('ingest') ?? 0,
  );
  for (const { host } of targets) await host.stop();
  return (sumOf(seconds) * 1e6) / (eventsOfHost * count);
}

test('The processor time of an event with one and two import hosts', { timeout: 1_800_000 }, async () => {
  const costs = setups.map((setup) => ({ setup, seconds: [] as number[] }));
  for (let round = 0; round < rounds; round += 1)
    for (const { setup, seconds } of costs) seconds.push(await measure(setup));
  const one = median(costs[0]?.seconds ?? []);
  expect(one).toBeGreaterThan(0);
  reportBench(
    'hosts',
    ['import hosts', 'CPU s per million events', 'ratio'],
    costs.map(({ setup, seconds }) => [setup.name, median(seconds).toFixed(2), (median(seconds) / one).toFixed(2)]),
    { eventsOfHost, costs: costs.map(({ setup, seconds }) => ({ ...setup, seconds })) },
  );
});
