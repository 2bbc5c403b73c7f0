import { createInterface } from 'node:readline';
import { isAppError } from '../../src/runtime/errors.ts';
import type { Lease } from '../../src/runtime/store/held-lease.ts';
import { createLeases } from '../../src/runtime/store/leases.ts';
import { openS3Bucket, type S3Settings } from '../../src/runtime/store/s3-bucket.ts';
import { createS3Store } from '../../src/runtime/store/s3-store.ts';

/** The argument of the process, as JSON. */
export interface LeaseChildSettings {
  readonly bucket: S3Settings;
  readonly prefix: string;
  readonly holder: string;
  readonly leaseMs: number;
}

const print = (line: string): void => void process.stdout.write(`${line}\n`);

/**
 * Holds a lease until its input ends or has the line `end`: prints `waiting` if another process holds it, `held EPOCH`,
 * and `lost` if it loses it. For any other line it creates the object of this name if it still has the lease, and
 * prints `wrote` or `refused`.
 */
async function main({ bucket: settings, prefix, ...options }: LeaseChildSettings): Promise<void> {
  const bucket = await openS3Bucket(settings);
  const store = createS3Store({ bucket, prefix, scratchFolder: '' });
  const work = async ({ epoch, lost, assertHeld }: Lease): Promise<void> => {
    print(`held ${epoch}`);
    lost.addEventListener('abort', () => print('lost'));
    for await (const line of createInterface({ input: process.stdin })) {
      if (line === 'end') return;
      try {
        assertHeld();
        await store.create(line, Buffer.from(''));
        print(`wrote ${line}`);
      } catch (error) {
        if (!isAppError(error, 'lease_lost')) throw error;
        print(`refused ${line}`);
      }
    }
  };
  await createLeases(store, options).hold('compact', work, { onWaiting: () => print('waiting') });
  bucket.close();
  process.stdin.destroy();
}

void main(JSON.parse(process.argv[2] ?? '') as LeaseChildSettings);
