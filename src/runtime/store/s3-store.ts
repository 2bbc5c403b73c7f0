/**
 * S3Store keeps objects below a prefix of a bucket.
 *
 * A tag is an ETag: on most servers, equal bytes have equal tags. Crash: an object is the old one or the new one.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { createKeyedSemaphore } from '../async/semaphore.ts';
import { inParallel } from '../async/in-parallel.ts';
import { AppError } from '../errors.ts';
import { removeFile } from '../files/durable-file.ts';
import { missingObject, type ObjectStore, type StoredObject, type Tag } from './object-store.ts';
import type { S3Bucket, S3Request } from './s3-bucket.ts';
import { fetchObject, findHead, listAll, openObject, toEtag, toTag } from './s3-read.ts';
import { putBytes, putFile, type Condition } from './s3-write.ts';

/** S3's limit of keys per removal. */
const removedAtOnce = 1000;
/** Requests at a time where a server lacks removals of many keys. */
const removalWidth = 8;
const noBytes = new Uint8Array();
const turns = createKeyedSemaphore();
/** Names that the current work holds: nested work of the same name does not wait. */
const held = new AsyncLocalStorage<readonly string[]>();

export interface S3StoreOptions {
  readonly bucket: S3Bucket;
  /** Start of all keys: empty, or ends with `/`. */
  readonly prefix: string;
  /** An existing local folder for files that will be uploaded. Its owner removes what a crash leaves. */
  readonly scratchFolder: string;
}

export interface S3Store extends ObjectStore {
  /** Fetches an object into a new local file. Returns whether there is one; an incomplete file stays after an error. */
  fetch(key: string, localFile: string): Promise<boolean>;
}

const existingObject = (name: string): Error => Object.assign(new Error(`${name} exists`), { code: 'EEXIST' });

async function inTurn<T>(name: string, work: () => Promise<T>): Promise<T> {
  const outer = held.getStore() ?? [];
  if (outer.includes(name)) return await work();
  return await turns.run(name, () => held.run([...outer, name], work));
}

/** Removes objects. Error: `store_refused`, also if only some could not be removed. */
async function removeKeys(bucket: S3Bucket, keys: readonly string[]): Promise<void> {
  for (let from = 0; from < keys.length; from += removedAtOnce) {
    const some = keys.slice(from, from + removedAtOnce);
    const what = `remove ${bucket.nameOf(some[0] ?? '')} and others`;
    const Delete = { Objects: some.map((Key) => ({ Key })), Quiet: true };
    const result = await bucket.ask(what, (s3, options) => s3.deleteObjects({ Bucket: bucket.name, Delete }, options), {
      refusals: { 405: 'unsupported', 501: 'unsupported' } as const,
    });
    const left = result === 'unsupported' ? Delete.Objects : (result.Errors ?? []);
    await inParallel(left, removalWidth, async ({ Key }) => {
      await bucket.ask(`remove ${bucket.nameOf(Key ?? '')}`, (s3, options) =>
        s3.deleteObject({ Bucket: bucket.name, Key }, options),
      );
    });
  }
}

type Reads =
  | 'nameOf'
  | 'get'
  | 'getIfChanged'
  | 'open'
  | 'findSize'
  | 'onHint'
  | 'list'
  | 'folders'
  | 'findListTag'
  | 'fetch';

function createReads(bucket: S3Bucket, prefix: string): Pick<S3Store, Reads> {
  async function read<A>(key: string, condition: object, refusals: Readonly<Record<number, A>>) {
    const target = { Bucket: bucket.name, Key: prefix + key, ...condition };
    const request: S3Request<StoredObject> = async (s3, options) => {
      const found = await s3.getObject(target, options);
      return { bytes: (await found.Body?.transformToByteArray()) ?? noBytes, tag: toTag(found.ETag) };
    };
    return await bucket.ask(`read ${bucket.nameOf(prefix + key)}`, request, { refusals });
  }
  return {
    nameOf: (key) => bucket.nameOf(prefix + key),
    get: (key) => read(key, {}, { 404: undefined }),
    getIfChanged: (key, tag) => read(key, { IfNoneMatch: toEtag(tag) }, { 304: 'unchanged' as const, 404: undefined }),
    findSize: async (key) => (await findHead(bucket, prefix + key))?.sizeBytes,
    open: (key) => openObject(bucket, prefix + key),
    async folders(below) {
      const { folders } = await listAll(bucket, prefix + below, true);
      return folders.map((folder) => folder.slice(prefix.length + below.length, -1));
    },
    onHint: () => () => undefined,
    async list(below) {
      const { keys } = await listAll(bucket, prefix + below);
      return keys
        .map((key) => key.slice(prefix.length))
        .filter((key) => !key.endsWith('/') && !key.startsWith('.', key.lastIndexOf('/') + 1));
    },
    findListTag: async () => undefined,
    fetch: (key, localFile) => fetchObject(bucket, prefix + key, localFile),
  };
}

/** Creates or replaces an object by its newest tag: an attempt that arrives late does not undo a later write. */
async function putLatest(bucket: S3Bucket, key: string, bytes: Uint8Array): Promise<Tag> {
  const retries = bucket.openRetryWindow(`write ${bucket.nameOf(key)}`, bytes.length);
  for (;;) {
    const head = await findHead(bucket, key, retries);
    const condition: Condition = head === undefined ? { IfNoneMatch: '*' } : { IfMatch: toEtag(head.tag) };
    const result = await putBytes(bucket, key, bytes, condition, retries);
    if (result !== 'conflict') return result;
    await retries.wait(undefined);
  }
}

/** Copies an object, then removes it. Crash: both exist. Error: ENOENT. */
async function moveObject(bucket: S3Bucket, from: string, to: string): Promise<void> {
  const CopySource = `${bucket.name}/${from.split('/').map(encodeURIComponent).join('/')}`;
  const copied = await bucket.ask(
    `copy ${bucket.nameOf(from)}`,
    (s3, options) => s3.copyObject({ Bucket: bucket.name, Key: to, CopySource }, options),
    { refusals: { 404: 'missing' } as const },
  );
  if (copied === 'missing') throw missingObject(bucket.nameOf(from));
  await removeKeys(bucket, [from]);
}

/** Tries the conditions, reads and lists that commits need. Error: `store_unsafe`. */
async function probeBucket(bucket: S3Bucket, prefix: string): Promise<void> {
  const key = `${prefix}.probe-${randomUUID()}`;
  const put = (text: string, condition: Condition) => putBytes(bucket, key, Buffer.from(text), condition);
  const readText = async (): Promise<string | undefined> =>
    await bucket.ask(`read ${bucket.nameOf(key)}`, async (s3, options) =>
      (await s3.getObject({ Bucket: bucket.name, Key: key }, options)).Body?.transformToString(),
    );
  const assertSafe = (isSafe: boolean, fault: string): void => {
    if (isSafe) return;
    throw new AppError('store_unsafe', `the store of ${bucket.nameOf(prefix)} ${fault}`, {
      hint: 'Use a store with conditional writes and consistent reads, such as AWS S3.',
    });
  };
  try {
    const results = await Promise.all(['1', '2'].map((text) => put(text, { IfNoneMatch: '*' })));
    const [tag, ...others] = results.filter((result) => result !== 'conflict');
    assertSafe(tag !== undefined && others.length === 0, 'does not create an object once: it ignores If-None-Match');
    assertSafe((await readText()) === (results[0] === 'conflict' ? '2' : '1'), 'returns other bytes than it received');
    const head = await findHead(bucket, key);
    assertSafe(head?.writer !== undefined, 'does not keep the metadata of an object');
    const known = { IfMatch: toEtag(tag ?? '#') };
    assertSafe((await put('3', known)) !== 'conflict', 'does not replace an object by its ETag');
    assertSafe((await put('4', known)) === 'conflict', 'replaces an object by a stale ETag: it ignores If-Match');
    assertSafe((await readText()) === '3', 'returns an earlier state of an object');
    assertSafe((await listAll(bucket, key)).keys.includes(key), 'does not list a new object');
    await removeKeys(bucket, [key]);
    assertSafe((await put('5', known)) === 'conflict', 'replaces a missing object: it ignores If-Match');
    assertSafe((await listAll(bucket, key)).keys.length === 0, 'lists a removed object');
  } finally {
    await removeKeys(bucket, [key]);
  }
}

/** Creates a store over a bucket. Sends no request. */
export function createS3Store({ bucket, prefix, scratchFolder }: S3StoreOptions): S3Store {
  const keyOf = (key: string): string => prefix + key;
  const create = (key: string, bytes: Uint8Array) => putBytes(bucket, keyOf(key), bytes, { IfNoneMatch: '*' });
  const reads = createReads(bucket, prefix);
  return {
    ...reads,
    isShared: true,
    presign: (key, options) => bucket.presign(keyOf(key), options),
    async create(key, bytes, { onWritten, onCreated } = {}) {
      await onWritten?.();
      if ((await create(key, bytes)) === 'conflict') return 'exists';
      await onCreated?.();
      return 'created';
    },
    async add(key, bytes) {
      if ((await create(key, bytes)) === 'conflict') throw existingObject(bucket.nameOf(keyOf(key)));
    },
    replace: (key, bytes, ifTag) =>
      ifTag === 'any'
        ? putLatest(bucket, keyOf(key), bytes)
        : putBytes(bucket, keyOf(key), bytes, { IfMatch: toEtag(ifTag) }),
    async append(key, bytes, from, ifTag) {
      if (ifTag === 'absent') return await create(key, bytes);
      const found = await reads.get(key);
      if (found?.tag !== ifTag) return 'conflict';
      const all = Buffer.concat([found.bytes.subarray(0, from), bytes]);
      return await putBytes(bucket, keyOf(key), all, { IfMatch: toEtag(ifTag) });
    },
    async note(key, bytes) {
      await putLatest(bucket, keyOf(key), bytes);
    },
    localPath: (key) => path.join(scratchFolder, `.${path.posix.basename(key)}.${randomUUID()}.tmp`),
    async upload(key, localFile, { sha256 } = {}) {
      await putFile(bucket, keyOf(key), localFile, 'any', sha256);
      await removeFile(localFile);
    },
    async publish(objects, onEach) {
      for (const { key, file, sha256 } of objects) {
        const result = await putFile(bucket, keyOf(key), file, { IfNoneMatch: '*' }, sha256);
        if (result === 'conflict') throw existingObject(bucket.nameOf(keyOf(key)));
        await onEach?.();
      }
    },
    move: (key, to) => moveObject(bucket, keyOf(key), keyOf(to)),
    sync: async () => undefined,
    findTag: async (key) => (await findHead(bucket, keyOf(key)))?.tag,
    remove: (keys) => removeKeys(bucket, keys.map(keyOf)),
    sweep: async () => undefined,
    listUnfinished: async () => [],
    hold: (name, work) => inTurn(bucket.nameOf(keyOf(name)), work),
    async keepsVersions() {
      const refusals = { 400: undefined, 403: undefined, 404: undefined, 405: undefined, 501: undefined };
      const what = `read the versioning of ${bucket.nameOf('')}`;
      return await bucket.ask(
        what,
        async (s3, options) => (await s3.getBucketVersioning({ Bucket: bucket.name }, options)).Status !== undefined,
        { refusals },
      );
    },
    probe: () => probeBucket(bucket, prefix),
  };
}
