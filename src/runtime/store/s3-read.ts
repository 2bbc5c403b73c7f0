/** Reads and lists of objects in a bucket. A range is of one state of its object, by its ETag. */
import { Readable } from 'node:stream';
import { inParallel } from '../async/in-parallel.ts';
import { AppError } from '../errors.ts';
import { openNewFile, type FileHandle } from '../files/open-file.ts';
import type { OpenObject, Tag } from './object-store.ts';
import type { RetryWindow, S3Bucket } from './s3-bucket.ts';

/** Part of a file that is fetched at a time. */
const partBytes = 16 * 1024 * 1024;
const partsAtOnce = 4;
/** Part of an open object that is read at a time. */
const blockBytes = 4 * 1024 * 1024;
/** Metadata with the id of the write. */
export const writerHeader = 'tributary-write';
const noBytes = new Uint8Array();

export const toTag = (etag: string | undefined): Tag => `#${etag ?? ''}`;
export const toEtag = (tag: Tag): string => tag.slice(1);

interface Head {
  readonly tag: Tag;
  readonly sizeBytes: number;
  readonly writer: string | undefined;
}

/** Reads the metadata of an object; undefined if there is none. */
export async function findHead(bucket: S3Bucket, key: string, retries?: RetryWindow): Promise<Head | undefined> {
  return await bucket.ask(
    `read ${bucket.nameOf(key)}`,
    async (s3, options) => {
      const found = await s3.headObject({ Bucket: bucket.name, Key: key }, options);
      const writer = found.Metadata?.[writerHeader];
      return { tag: toTag(found.ETag), sizeBytes: found.ContentLength ?? 0, writer };
    },
    { refusals: { 404: undefined }, ...(retries === undefined ? {} : { retries }) },
  );
}

async function writeAt(handle: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let at = 0; at < bytes.length;)
    at += (await handle.write(bytes, at, bytes.length - at, position + at)).bytesWritten;
}

/** Reads a range of an object, of one state if a tag is given; undefined if there is none. */
async function readRange(bucket: S3Bucket, key: string, [start, length]: readonly [number, number], tag?: Tag) {
  const range = {
    Range: `bytes=${start}-${start + length - 1}`,
    ...(tag === undefined ? {} : { IfMatch: toEtag(tag) }),
  };
  return await bucket.ask(
    `read ${bucket.nameOf(key)}`,
    async (s3, options) => {
      const found = await s3.getObject({ Bucket: bucket.name, Key: key, ...range }, options);
      const bytes = (await found.Body?.transformToByteArray()) ?? noBytes;
      const sizeBytes = Number(/\d+$/.exec(found.ContentRange ?? '')?.[0] ?? bytes.length);
      if (bytes.length !== Math.min(length, sizeBytes - start)) throw new Error('the response is incomplete');
      return { bytes, sizeBytes, tag: toTag(found.ETag) };
    },
    {
      // An empty object has no range.
      refusals: { 404: undefined, 412: undefined, 416: { bytes: noBytes, sizeBytes: 0, tag: toTag('') } },
      bytes: length * partsAtOnce,
    },
  );
}

/** Fetches an object into a new local file. Returns whether there is one; an incomplete file stays after an error. */
export async function fetchObject(bucket: S3Bucket, key: string, file: string): Promise<boolean> {
  const first = await readRange(bucket, key, [0, partBytes]);
  if (first === undefined) return false;
  const target = await openNewFile(file);
  try {
    await writeAt(target, first.bytes, 0);
    const others = Array.from({ length: Math.ceil(first.sizeBytes / partBytes) }, (_, n) => n * partBytes).slice(1);
    let isThere = true;
    await inParallel(others, partsAtOnce, async (start) => {
      const part = await readRange(bucket, key, [start, partBytes], first.tag);
      if (part === undefined) isThere = false;
      else await writeAt(target, part.bytes, start);
    });
    return isThere;
  } finally {
    await target.close();
  }
}

/** Opens an object by its metadata. A write gives it another version, also one of equal bytes. */
export async function openObject(bucket: S3Bucket, key: string): Promise<OpenObject | undefined> {
  const head = await findHead(bucket, key);
  if (head === undefined) return undefined;
  const { sizeBytes, tag, writer } = head;

  async function read(from: number, length: number): Promise<Uint8Array> {
    if (length <= 0 || from >= sizeBytes) return noBytes;
    const range = await readRange(bucket, key, [from, Math.min(length, sizeBytes - from)], tag);
    if (range !== undefined) return range.bytes;
    throw new AppError('conflict', `${bucket.nameOf(key)} was replaced or removed while it was read`, {
      hint: 'Retry the request.',
    });
  }

  async function* readBlocks(first = 0, last = Infinity): AsyncGenerator<Uint8Array> {
    const end = Math.min(last + 1, sizeBytes);
    for (let start = first; start < end; start += blockBytes)
      yield await read(start, Math.min(blockBytes, end - start));
  }

  return {
    sizeBytes,
    version: `${tag}:${writer ?? ''}`,
    read,
    blocks: () => readBlocks(),
    stream({ first, last } = { first: 0, last: Infinity }) {
      let bytesRead = 0;
      async function* counted(): AsyncGenerator<Uint8Array> {
        for await (const block of readBlocks(first, last)) {
          bytesRead += block.length;
          yield block;
        }
      }
      const stream = Readable.from(counted(), { objectMode: false });
      return Object.defineProperty(stream, 'bytesRead', { get: () => bytesRead }) as Readable & {
        readonly bytesRead: number;
      };
    },
    close: async () => undefined,
  };
}

interface Listed {
  readonly keys: readonly string[];
  /** Starts of keys up to the next `/`. */
  readonly folders: readonly string[];
}

/** Lists the full keys that begin with a prefix. With `isFlat`, those with a later `/` are grouped as folders. */
export async function listAll(bucket: S3Bucket, prefix: string, isFlat = false): Promise<Listed> {
  const [keys, folders]: [string[], string[]] = [[], []];
  const target = { Bucket: bucket.name, Prefix: prefix, ...(isFlat ? { Delimiter: '/' } : {}) };
  for (let after: string | undefined; ;) {
    const page = { ...target, ...(after === undefined ? {} : { ContinuationToken: after }) };
    const found = await bucket.ask(`list ${bucket.nameOf(prefix)}`, (s3, options) => s3.listObjectsV2(page, options));
    for (const { Key } of found.Contents ?? []) if (Key !== undefined) keys.push(Key);
    for (const { Prefix } of found.CommonPrefixes ?? []) if (Prefix !== undefined) folders.push(Prefix);
    after = found.NextContinuationToken;
    if (found.IsTruncated !== true || after === undefined) return { keys, folders };
  }
}
