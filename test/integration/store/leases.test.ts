import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createLeases } from '../../../src/runtime/store/leases.ts';
import type { S3Bucket, S3Settings } from '../../../src/runtime/store/s3-bucket.ts';
import { createS3Store } from '../../../src/runtime/store/s3-store.ts';
import { bundleChild } from '../../helpers/bundled.ts';
import { fakeBucket, startFakeS3 } from '../../helpers/fake-s3.ts';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';
import type { LeaseChildSettings } from '../../helpers/lease-child.ts';
import { startGateway, startMoto, useServer } from '../../helpers/s3-servers.ts';
import { waitFor, within } from '../../helpers/wait.ts';
import { describeLeases } from '../../unit/runtime/store/leases-suite.ts';

const folder = temporaryFolder();
let child: string | undefined;

/** Starts a process that waits for the lease. */
function startHolder(settings: LeaseChildSettings) {
  child ??= bundleChild(folder, 'lease-child');
  const holder = spawn(process.execPath, [child, JSON.stringify(settings)], { stdio: ['pipe', 'pipe', 'inherit'] });
  onTestFinished(() => void holder.kill('SIGKILL'));
  const printed: string[] = [];
  createInterface({ input: holder.stdout }).on('line', (line) => printed.push(line));
  const exited = once(holder, 'exit');
  return {
    printed,
    prints: (line: string, forMs?: number) => waitFor(`it prints ${line}`, () => printed.includes(line), forMs),
    send: (line: string): void => void holder.stdin.write(`${line}\n`),
    signal: (signal: 'SIGSTOP' | 'SIGCONT'): void => void holder.kill(signal),
    exits: async () => (await within('it exits', exited)).slice(0, 1),
  };
}

/** Stops the holder of a lease past its time, and returns what it and the next holder have printed. */
async function stopHolder(bucket: S3Settings) {
  const [leaseMs, prefix] = [1500, `${randomUUID()}/`];
  const one = startHolder({ bucket, prefix, holder: 'the first', leaseMs });
  await one.prints('held 1');
  one.send('a');
  await one.prints('wrote a');
  const other = startHolder({ bucket, prefix, holder: 'the second', leaseMs });
  await other.prints('waiting');
  one.signal('SIGSTOP');
  // Both the input and the timers wait for the moment at which it resumes.
  one.send('b');
  await other.prints('held 2', leaseMs + 5000);
  one.signal('SIGCONT');
  await one.prints('refused b');
  await one.prints('lost');
  other.send('c');
  await other.prints('wrote c');
  one.send('end');
  other.send('end');
  return { exits: [await one.exits(), await other.exits()], one: one.printed.toSorted(), other: other.printed };
}

const expected = {
  exits: [[0], [0]],
  one: ['held 1', 'lost', 'refused b', 'wrote a'],
  other: ['waiting', 'held 2', 'wrote c'],
};

it('A process that resumes past its lease writes nothing, and another one has taken over', async () => {
  const { endpoint } = await startFakeS3();
  expect(await stopHolder(fakeBucket(endpoint))).toEqual(expected);
});

describe.each([
  { name: 'versitygw', start: () => startGateway(folder) },
  { name: 'moto', start: startMoto },
])('on $name', ({ start }) => {
  const { findServer, listBuckets } = useServer(start);

  describeLeases(async (skip) => {
    if (findServer() === undefined) skip('the server is not available');
    const prefix = `${randomUUID()}/`;
    const open = (bucket: S3Bucket | undefined, holder: string) => {
      if (bucket === undefined) throw new Error('there are two clients');
      return createLeases(createS3Store({ bucket, prefix, scratchFolder: testFolder() }), { holder, leaseMs: 3000 });
    };
    const [one, other] = listBuckets();
    return [open(one, 'the first'), open(other, 'the second')];
  });

  it('A process that resumes past its lease writes nothing', async ({ skip }) => {
    const server = findServer();
    if (server === undefined) {
      skip('the server is not available');
      return;
    }
    expect(await stopHolder(server.settings)).toEqual(expected);
  });
});
