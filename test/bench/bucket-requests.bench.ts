import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pass } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { bucketSettings, startTestBroker, startTestBucket } from '../helpers/bucket.ts';
import { startFakeS3, type FakeS3 } from '../helpers/fake-s3.ts';
import { testFolder } from '../helpers/folder.ts';
import { runCommand, startTestService } from '../helpers/service.ts';
import { reportBench } from './bench-report.ts';

/*
 * Requests to a bucket, which providers charge: those of an idle host of each role, and those of a flush and of a seal,
 * counted by an S3 server in memory. `tributary size` computes with the figures (docs/sizing.md).
 */
const idleMs = 60_000;
const loadMs = 60_000;
const roles = ['ingest', 'compact', 'export'] as const;

/** Requests of the classes that providers charge: PUT, POST and LIST are writes, GET and HEAD are reads. */
interface Requests {
  readonly writes: number;
  readonly reads: number;
}

function countFrom({ asked }: FakeS3, from: number): Requests {
  const methods = asked.slice(from).map((one) => one.split(' ')[0] ?? '');
  const count = (...names: readonly string[]): number => methods.filter((method) => names.includes(method)).length;
  return { writes: count('PUT', 'POST', 'LIST'), reads: count('GET', 'HEAD') };
}

const countLines = (logFile: string, message: string): number =>
  readFileSync(logFile, 'utf8').split(`"msg":"${message}"`).length - 1;

/** Runs a host of each role, and returns the requests of a minute without and of a minute with one event per 100 ms. */
async function measure(sealAgeMs: number) {
  const { s3: first, settings: shared } = await startTestBucket();
  const settings = {
    ...shared,
    TRIBUTARY_NATS_URL: await startTestBroker(),
    TRIBUTARY_SEAL_AGE_MS: String(sealAgeMs),
  };
  const command = (...words: readonly string[]) =>
    runCommand([...words, '--data', path.join(testFolder(), 'commands')], settings);
  const token = String((await command('app', 'add', '1', '--platform', 'web'))['token']);
  const hosts = [];
  for (const role of roles) {
    const s3 = await startFakeS3({}, first.objects);
    const dataDir = path.join(testFolder(), role);
    const { TRIBUTARY_S3_ENDPOINT } = bucketSettings(s3.endpoint);
    const service = await startTestService({
      dataDir,
      words: ['--role', role],
      settings: { ...settings, ...(TRIBUTARY_S3_ENDPOINT === undefined ? {} : { TRIBUTARY_S3_ENDPOINT }) },
    });
    onTestFinished(() => service.destroy());
    hosts.push({ role, s3, service, logFile: `${dataDir}.log` });
  }
  const countDuring = async (work: () => Promise<void>) => {
    const before = hosts.map(({ s3, logFile }) => ({
      asked: s3.asked.length,
      flushes: countLines(logFile, 'flushed'),
      seals: countLines(logFile, 'sealed'),
    }));
    await work();
    return hosts.map(({ role, s3, logFile }, index) => ({
      role,
      ...countFrom(s3, before[index]?.asked ?? 0),
      flushes: countLines(logFile, 'flushed') - (before[index]?.flushes ?? 0),
      seals: countLines(logFile, 'sealed') - (before[index]?.seals ?? 0),
    }));
  };
  const [ingest, compact] = hosts;
  const idle = await countDuring(() => pass(idleMs));
  const loaded = await countDuring(async () => {
    for (const beganMs = performance.now(); performance.now() - beganMs < loadMs; await pass(100)) {
      const { status } = await fetch(`${ingest?.service.s2s}/v1/customEvent/?idApp=1`, {
        method: 'POST',
        headers: { authorization: token },
        body: JSON.stringify({ customUserId: 'u-1', customEventName: 'level_up' }),
      });
      expect(status).toBe(200);
    }
    if (compact !== undefined) await waitUntilWorkedOff(compact.service);
  });
  for (const { service } of hosts) await service.stop();
  return { idle, loaded };
}

test('The requests to a bucket', { timeout: 900_000 }, async () => {
  const plain = await measure(3_600_000);
  const sealing = await measure(10_000);
  const rows = Object.entries({ plain, sealing }).flatMap(([name, { idle, loaded }]) =>
    Object.entries({ idle, loaded }).flatMap(([state, found]) =>
      found.map(({ role, writes, reads, flushes, seals }) => [
        `${name}, ${state}`,
        role,
        ...[writes, reads, flushes, seals].map(String),
      ]),
    ),
  );
  reportBench('bucket-requests', ['run', 'role', 'writes', 'reads', 'flushes', 'seals'], rows, { plain, sealing });
});
