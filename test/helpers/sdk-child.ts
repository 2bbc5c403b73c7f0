import { createRequire } from 'node:module';
import { openStore } from '../../src/runtime/store/open-store.ts';
import { openS3Bucket } from '../../src/runtime/store/s3-bucket.ts';
import { createS3Store } from '../../src/runtime/store/s3-store.ts';

/** Prints the files that a process has loaded before and after it opens a bucket, as JSON. */
const loaded = (): string[] => Object.keys(createRequire(__filename).cache);

async function main(): Promise<void> {
  openStore('folder');
  const before = loaded();
  const bucket = await openS3Bucket({ bucket: 'lake', endpoint: 'http://127.0.0.1:1' });
  createS3Store({ bucket, prefix: '', scratchFolder: '' });
  process.stdout.write(JSON.stringify({ before, after: loaded() }));
}

void main();
