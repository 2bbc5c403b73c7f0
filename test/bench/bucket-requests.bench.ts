import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pass } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { startTestBroker, startTestBucket } from '../helpers/bucket.ts';
import { startFakeS3, type FakeS3 } from '../helpers/fake-s3.ts';
import { testFolder } from '../helpers/folder.ts';
import { runCommand, startTestService, type TestService } from '../helpers/service.ts';
import { reportBench } from './bench-report.ts';

/*
 * Requests to a bucket, which providers charge: those of an idle host of each role, and those of a flush, counted by
 * an S3 server in memory. `tributary size` calculates with the figures (docs/sizing.md).
 */
/** Duration of each state, ms. */
const measureMs = 120_000;
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

const countFlushes = (logFile: string): number => readFileSync(logFile, 'utf8').split('"msg":"flushed"').length - 1;

test('The requests to a bucket', { timeout: 900_000 }, async () => {
  const { s3: first, settings: shared } = await startTestBucket();
  const settings = { ...shared, TRIBUTARY_NATS_URL: await startTestBroker(), TRIBUTARY_FLUSH_AGE_MS: '5000' };
  const command = (...words: readonly string[]) =>
    runCommand([...words, '--data', path.join(testFolder(), 'commands')], settings);
  const token = String((await command('app', 'add', '1', '--platform', 'web'))['token']);
  const hosts: { role: string; s3: FakeS3; service: TestService; logFile: string }[] = [];
  for (const role of roles) {
    const s3 = await startFakeS3({}, first.objects);
    const dataDir = path.join(testFolder(), role);
    const service = await startTestService({
      dataDir,
      words: ['--role', role],
      settings: { ...settings, TRIBUTARY_S3_ENDPOINT: s3.endpoint },
    });
    onTestFinished(() => service.destroy());
    hosts.push({ role, s3, service, logFile: `${dataDir}.log` });
  }
  const countDuring = async (work: () => Promise<void>) => {
    const before = hosts.map(({ s3, logFile }) => ({ asked: s3.asked.length, flushes: countFlushes(logFile) }));
    await work();
    return hosts.map(({ role, s3, logFile }, index) => ({
      role,
      ...countFrom(s3, before[index]?.asked ?? 0),
      flushes: countFlushes(logFile) - (before[index]?.flushes ?? 0),
    }));
  };
  const [ingest, compact] = hosts;
  const idle = await countDuring(() => pass(measureMs));
  const loaded = await countDuring(async () => {
    for (const beganMs = performance.now(); performance.now() - beganMs < measureMs; await pass(100)) {
      const { status } = await fetch(`${ingest?.service.s2s}/v1/customEvent/?idApp=1`, {
        method: 'POST',
        headers: { authorization: token },
        body: JSON.stringify({ customUserId: 'u-1', customEventName: 'level_up' }),
      });
      expect(status).toBe(200);
    }
    if (compact !== undefined) await waitUntilWorkedOff(compact.service);
  });
  const rows = Object.entries({ idle, loaded }).flatMap(([state, found]) =>
    found.map(({ role, writes, reads, flushes }) => [state, role, ...[writes, reads, flushes].map(String)]),
  );
  reportBench('bucket-requests', ['state', 'role', 'writes', 'reads', 'flushes'], rows, { idle, loaded });
});
