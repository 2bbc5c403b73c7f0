import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { openFakeStore, startFakeS3, type FakeFlaws, type FakeS3 } from '../../../helpers/fake-s3.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { errorAnswer, type S3Fault, type S3Request } from '../../../helpers/s3-proxy.ts';
import { describeObjectStore } from './object-store-suite.ts';

const bytes = (text: string): Uint8Array => Buffer.from(text);

async function open(flaws: FakeFlaws = {}, limits = {}) {
  const server = await startFakeS3(flaws);
  return { server, store: await openFakeStore(server, limits) };
}

/** Gives the first requests of a method these faults. */
function failing(server: FakeS3, method: string, ...faults: readonly S3Fault[]): void {
  const left = [...faults];
  server.faultOf = (asked: S3Request) => (asked.method === method ? left.shift() : undefined);
}

const done = (answer: S3Fault['answer']): S3Fault => ({ isDone: true, answer });
const undone = (answer: S3Fault['answer']): S3Fault => ({ isDone: false, answer });
const busy = errorAnswer(503, 'SlowDown');
const racing = errorAnswer(409, 'ConditionalRequestConflict');

describeObjectStore(async () => {
  const server = await startFakeS3();
  return [await openFakeStore(server), await openFakeStore(server)];
});

describe('a write to S3 whose answer is lost', () => {
  const lost: readonly (readonly [string, S3Fault])[] = [
    ['a broken connection after the write', done('cut')],
    ['a broken connection before the write', undone('cut')],
    ['503 after the write', done(busy)],
    ['503 before the write', undone(busy)],
    ['409', undone(racing)],
    ['no answer after the write', done('silence')],
  ];
  test.each(lost)('A create and a replace succeed once after %s', async (_name, fault) => {
    const { server, store } = await open({}, { requestMs: 300 });
    failing(server, 'PUT', fault);
    expect(await store.create('object', bytes('1'))).toBe('created');
    const tag = (await store.get('object'))?.tag ?? '#';
    failing(server, 'PUT', fault);
    expect(await store.replace('object', bytes('2'), tag)).toMatch(/^#"/);
    failing(server, 'PUT', fault);
    expect(await store.replace('object', bytes('3'), tag)).toBe('conflict');
    failing(server, 'PUT', fault);
    await store.add('other', bytes('4'));
    failing(server, 'PUT', fault);
    await expect(store.add('other', bytes('5'))).rejects.toMatchObject({ code: 'EEXIST' });
    expect([...server.objects.values()].map((object) => String(object.bytes))).toEqual(['2', '4']);
  });

  test('A lost answer is the own one only if this call has written, even if a rival has written equal bytes', async () => {
    const { server, store } = await open();
    await store.create('object', bytes('same'));
    failing(server, 'PUT', undone('cut'));
    expect(await store.create('object', bytes('same'))).toBe('exists');
  });

  test('A create whose lost first attempt arrives just before the second one succeeds', async () => {
    const { server, store } = await open();
    const puts: S3Request[] = [];
    server.faultOf = (asked) => {
      if (asked.method !== 'PUT' || puts.push(asked) > 2) return undefined;
      const [first] = puts;
      if (puts.length === 1 || first === undefined) return undone('cut');
      const name = 'x-amz-meta-tributary-write';
      const metadata = { [name]: String(first.headers[name]) };
      server.objects.set('a/object', { bytes: first.body, etag: '"1"', metadata });
      return undefined;
    };
    expect(await store.create('object', bytes('1'))).toBe('created');
    expect(puts).toHaveLength(2);
  });

  test('A refused condition is a conflict without another request', async () => {
    const { server, store } = await open();
    await store.create('object', bytes('1'));
    server.asked.length = 0;
    expect(await store.create('object', bytes('2'))).toBe('exists');
    expect(server.asked).toEqual(['PUT a/object']);
  });

  test('A server that never answers ends a call with an error that says so, and may be tried again', async () => {
    const { server, store } = await open({}, { requestMs: 50, callMs: 300 });
    const beganMs = performance.now();
    server.faultOf = () => undone('silence');
    const error = {
      code: 'store_away',
      retryable: true,
      message: expect.stringMatching(/no definite response within 30\d ms/),
    };
    await expect(store.create('object', bytes('1'))).rejects.toMatchObject(error);
    expect(performance.now() - beganMs).toBeLessThan(2000);
    await expect(store.get('object')).rejects.toMatchObject(error);
  });

  test('A request that the server denies is not repeated', async () => {
    const { server, store } = await open();
    let requests = 0;
    server.faultOf = () => {
      requests += 1;
      return undone(errorAnswer(403, 'AccessDenied'));
    };
    await expect(store.create('object', bytes('1'))).rejects.toMatchObject({ code: 'store_refused' });
    expect(requests).toBe(1);
  });

  test('A missing bucket is an error, not a missing object', async () => {
    const { server, store } = await open();
    server.faultOf = () => undone(errorAnswer(404, 'NoSuchBucket'));
    await expect(store.get('object')).rejects.toMatchObject({ code: 'store_refused' });
  });

  test('A replacement that arrives late does not undo a later one', async () => {
    const { server, store } = await open({}, { requestMs: 100 });
    await store.replace('object', bytes('1'), 'any');
    failing(server, 'PUT', { isDone: true, answer: 'late', delayMs: 400 });
    await store.replace('object', bytes('2'), 'any');
    await store.replace('object', bytes('3'), 'any');
    await expect.poll(() => server.asked.filter((asked) => asked === 'PUT a/object').length).toBe(4);
    expect(String(server.objects.get('a/object')?.bytes)).toBe('3');
  });
});

describe('servers that differ', () => {
  test.each([
    ['ignores conditions', { ignoresConditions: true }, /does not create an object once/],
    ['loses metadata', { losesMetadata: true }, /does not keep the metadata/],
  ] as const)('A server that %s fails the probe', async (_name, flaws, message) => {
    const { store } = await open(flaws);
    await expect(store.probe()).rejects.toMatchObject({
      code: 'store_unsafe',
      retryable: false,
      message: expect.stringMatching(message),
    });
    expect(await store.list('')).toEqual([]);
  });

  test('A list has all pages, and a removal has more keys than one request, also without removals of many', async () => {
    const { server, store } = await open({ pageKeys: 300 });
    const keys = Array.from({ length: 1500 }, (_, n) => `list/${n}`);
    const fill = (): void => {
      for (const key of keys) server.objects.set(`a/${key}`, { bytes: Buffer.from(''), etag: '""', metadata: {} });
    };
    fill();
    expect((await store.list('list/')).toSorted()).toEqual(keys.toSorted());
    await store.remove(keys);
    expect(server.objects.size).toBe(0);
    const { server: plain, store: other } = await open({ lacksRemovalOfMany: true });
    await other.create('one', bytes('1'));
    await other.create('two', bytes('2'));
    await other.remove(['one', 'two', 'three']);
    expect(plain.objects.size).toBe(0);
  });

  test('A file that differs from its hash is not uploaded', async () => {
    const { server, store } = await open();
    const file = path.join(testFolder(), 'file');
    writeFileSync(file, 'bytes');
    await expect(store.upload('file', file, { sha256: '0'.repeat(64) })).rejects.toMatchObject({
      code: 'file_damaged',
    });
    expect(server.objects.size).toBe(0);
  });
});
