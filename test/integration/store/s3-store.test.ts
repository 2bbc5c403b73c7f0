import { execFileSync } from 'node:child_process';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openS3Bucket } from '../../../src/runtime/store/s3-bucket.ts';
import { hashFile } from '../../../src/runtime/files/file-checks.ts';
import { createS3Store } from '../../../src/runtime/store/s3-store.ts';
import { partBytes } from '../../../src/runtime/store/s3-write.ts';
import { forwardTo, startS3Proxy } from '../../helpers/s3-proxy.ts';
import { bundleChild } from '../../helpers/bundled.ts';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';
import { startGateway, startMoto, useServer } from '../../helpers/s3-servers.ts';
import { describeObjectStore } from '../../unit/runtime/store/object-store-suite.ts';

const folder = temporaryFolder();

describe.each([
  { name: 'versitygw', start: () => startGateway(folder), checksSignatures: true },
  { name: 'moto', start: startMoto, checksSignatures: false },
])('on $name', ({ start, checksSignatures }) => {
  const { findServer, listBuckets } = useServer(start);
  describeObjectStore(async (skip) => {
    if (findServer() === undefined) skip('the server is not available');
    const prefix = `${randomUUID()}/below/`;
    const scratchFolder = testFolder();
    const [one, other] = listBuckets().map((bucket) => createS3Store({ bucket, prefix, scratchFolder }));
    if (one === undefined || other === undefined) throw new Error('there are two clients');
    return [one, other];
  });

  it('A large file is sent in parts, fetched unchanged, and published only under a free key', async ({ skip }) => {
    const [bucket] = listBuckets();
    if (bucket === undefined) {
      skip('the server is not available');
      return;
    }
    const scratchFolder = testFolder();
    const store = createS3Store({ bucket, prefix: `${randomUUID()}/`, scratchFolder });
    const content = randomBytes(2 * partBytes + 1234);
    const sha256 = createHash('sha256').update(content).digest('hex');
    const writeLocal = (): string => {
      const file = store.localPath('kind=a/large');
      writeFileSync(file, content);
      return file;
    };
    await expect(store.upload('kind=a/large', writeLocal(), { sha256: '0'.repeat(64) })).rejects.toMatchObject({
      code: 'file_damaged',
    });
    expect(await store.list('')).toEqual([]);
    await store.upload('kind=a/large', writeLocal(), { sha256 });
    await store.upload('kind=a/large', writeLocal(), { sha256 });
    const fetched = path.join(scratchFolder, 'fetched');
    expect(await store.fetch('kind=a/large', fetched)).toBe(true);
    expect(await hashFile(fetched)).toBe(sha256);
    const file = writeLocal();
    await store.publish([{ key: 'kind=a/published', file }]);
    await expect(store.publish([{ key: 'kind=a/published', file }])).rejects.toMatchObject({ code: 'EEXIST' });
    expect(await store.findSize('kind=a/published')).toBe(content.length);
    expect(await store.fetch('kind=a/missing', path.join(scratchFolder, 'missing'))).toBe(false);
    await store.create('empty', new Uint8Array());
    expect(await store.fetch('empty', path.join(scratchFolder, 'empty'))).toBe(true);
    expect(statSync(path.join(scratchFolder, 'empty')).size).toBe(0);
  });

  it.runIf(checksSignatures)('A request whose bytes change on the way is refused', async ({ skip }) => {
    const server = findServer();
    if (server === undefined) {
      skip('the server is not available');
      return;
    }
    const forward = forwardTo(server.settings.endpoint);
    const proxy = await startS3Proxy((asked) => {
      const body = Buffer.from(asked.body);
      if (asked.method === 'PUT') body[0] = (body[0] ?? 0) + 1;
      return forward({ ...asked, body });
    });
    const bucket = await openS3Bucket({ ...server.settings, endpoint: proxy.endpoint });
    onTestFinished(() => bucket.close());
    const store = createS3Store({ bucket, prefix: `${randomUUID()}/`, scratchFolder: testFolder() });
    await expect(store.create('object', Buffer.from('bytes'))).rejects.toMatchObject({ code: 'store_refused' });
    expect(await store.get('object')).toBeUndefined();
  });
});

const hasSdk = (file: string): boolean => readFileSync(file, 'utf8').includes('node_modules/@aws-sdk/');

it('A process loads the SDK when it opens a bucket, and not before', () => {
  const child = bundleChild(testFolder(), 'sdk-child');
  const printed = execFileSync(process.execPath, [child], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  const { before, after } = JSON.parse(printed) as Record<'before' | 'after', readonly string[]>;
  expect(before.length).toBeGreaterThan(0);
  expect(before.filter(hasSdk)).toEqual([]);
  expect(after.filter(hasSdk)).not.toEqual([]);
});
