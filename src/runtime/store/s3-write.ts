/**
 * Writes objects in a bucket so that the outcome is known even if responses are lost.
 *
 * Each call marks its object with a random id in the metadata. After an attempt without a definite response, the id
 * shows whether the object is that of this call, also where a rival writes equal bytes. An object has the id of its last
 * write only. If the response of a replacement is lost and another writer then replaces the object, the first one
 * reports a conflict.
 */
import { createHash, randomUUID } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { inParallel } from '../async/in-parallel.ts';
import { createMutex } from '../async/semaphore.ts';
import { AppError } from '../errors.ts';
import { openForReading } from '../files/open-file.ts';
import type { Tag } from './object-store.ts';
import { findHead, toTag, writerHeader } from './s3-read.ts';
import { refusedError, type Outcome, type RetryWindow, type S3Bucket } from './s3-bucket.ts';

/** Files of this size and more are sent in parts of this size, bytes. */
export const partBytes = 16 * 1024 * 1024;
/** Parts of one file that are sent at a time. */
const partsAtOnce = 4;
/** S3's limit of parts per object. */
const maxParts = 10_000;

/** The state that a write requires. `any`: the object may have any state. */
export type Condition = { readonly IfNoneMatch: '*' } | { readonly IfMatch: string } | 'any';

/** Metadata that marks an object as that of a call. */
const marked = (writer: string) => ({ [writerHeader]: writer });

interface Call {
  readonly bucket: S3Bucket;
  readonly key: string;
  readonly bytes: number;
  readonly condition: Condition;
  readonly writer: string;
  readonly retries: RetryWindow;
}

/** Repeats an attempt, which returns the ETag, until its outcome is known. Errors: `store_away`, `store_refused`. */
async function writeOnce(
  { bucket, key, condition, writer, retries }: Call,
  attempt: (required: object) => Promise<Outcome<string | undefined>>,
): Promise<Tag | 'conflict'> {
  const what = `write ${bucket.nameOf(key)}`;
  const required: { readonly IfNoneMatch?: '*'; readonly IfMatch?: string } = condition === 'any' ? {} : condition;
  const replaced = required.IfMatch === undefined ? undefined : toTag(required.IfMatch);
  for (let mayBeWritten = false; ;) {
    const outcome = await attempt(required);
    if (outcome.kind === 'done') return toTag(outcome.value);
    if (outcome.kind === 'refused') {
      const isConflict = outcome.status === 412 || (outcome.status === 404 && replaced !== undefined);
      if (isConflict && !mayBeWritten) return 'conflict';
      // An upload in parts that is complete does not exist any more.
      if (!isConflict && !(outcome.status === 404 && mayBeWritten)) throw refusedError(what, outcome.error);
    }
    mayBeWritten = true;
    const found = await findHead(bucket, key, retries);
    if (found?.writer === writer) return found.tag;
    if (replaced !== undefined && found?.tag !== replaced) return 'conflict';
    if (required.IfNoneMatch !== undefined && found !== undefined) return 'conflict';
    await retries.wait(outcome.error);
  }
}

/** Writes an object in one request. */
export async function putBytes(
  bucket: S3Bucket,
  key: string,
  bytes: Uint8Array,
  condition: Condition,
  retries = bucket.openRetryWindow(`write ${bucket.nameOf(key)}`, bytes.length),
): Promise<Tag | 'conflict'> {
  const call = { bucket, key, bytes: bytes.length, condition, writer: randomUUID(), retries };
  const put = { Bucket: bucket.name, Key: key, Body: bytes, Metadata: marked(call.writer) };
  return await writeOnce(call, (required) =>
    bucket.attempt(async (s3, options) => (await s3.putObject({ ...put, ...required }, options)).ETag, bytes.length),
  );
}

/** Bytes that are written to an object. */
export interface ByteSource {
  readonly sizeBytes: number;
  /** Reads bytes from a position; each call returns all of them, or throws. */
  read(position: number, length: number): Promise<Uint8Array>;
}

async function readPart(handle: FileHandle, position: number, length: number): Promise<Buffer> {
  const part = Buffer.allocUnsafe(length);
  for (let at = 0; at < length;) {
    const { bytesRead } = await handle.read(part, at, length - at, position + at);
    if (bytesRead === 0) throw new Error('the file became shorter while it was read');
    at += bytesRead;
  }
  return part;
}

/** Throws `file_damaged` for a local file that differs from its hash. */
function assertHash(file: string, found: string, sha256: string | undefined): void {
  if (sha256 !== undefined && found !== sha256)
    throw new AppError('file_damaged', `${file} does not match its checksum; it was not uploaded`, {
      hint: 'Check the disk of the data folder. The work is repeated.',
    });
}

interface Upload {
  readonly Bucket: string;
  readonly Key: string;
  readonly UploadId: string | undefined;
}

/** Sends the parts of a file. Returns them in their order, and the SHA-256 of the file. */
async function sendParts(bucket: S3Bucket, upload: Upload, source: ByteSource) {
  const bytes = source.sizeBytes;
  const size = Math.max(partBytes, Math.ceil(bytes / maxParts));
  const [reading, hash] = [createMutex(), createHash('sha256')];
  const numbers = Array.from({ length: Math.ceil(bytes / size) }, (_, n) => n + 1);
  const sent: { readonly PartNumber: number; readonly ETag: string | undefined }[] = [];
  await inParallel(numbers, partsAtOnce, async (PartNumber) => {
    // Parts are read in their order, for the hash over all of them.
    const Body = await reading.run(async () => {
      const position = (PartNumber - 1) * size;
      const part = await source.read(position, Math.min(size, bytes - position));
      hash.update(part);
      return part;
    });
    const { ETag } = await bucket.ask(
      `write ${bucket.nameOf(upload.Key)}`,
      (s3, options) => s3.uploadPart({ ...upload, PartNumber, Body }, options),
      { bytes: Body.length * partsAtOnce },
    );
    sent.push({ PartNumber, ETag });
  });
  const Parts = sent.toSorted((a, b) => a.PartNumber - b.PartNumber);
  return { Parts, sha256: hash.digest('hex') };
}

/** Sends a large file in parts. Crash, or abort: the parts stay, unseen, until a lifecycle rule of the bucket removes them. */
async function putParts(
  { bucket, key, condition }: Pick<Call, 'bucket' | 'key' | 'condition'>,
  source: ByteSource,
  check: (sha256: string) => void,
): Promise<Tag | 'conflict'> {
  const bytes = source.sizeBytes;
  const [target, what, writer] = [{ Bucket: bucket.name, Key: key }, `write ${bucket.nameOf(key)}`, randomUUID()];
  const { UploadId } = await bucket.ask(what, (s3, options) =>
    s3.createMultipartUpload({ ...target, Metadata: marked(writer) }, options),
  );
  const upload = { ...target, UploadId };
  let result: Tag | 'conflict' = 'conflict';
  try {
    const { Parts, sha256 } = await sendParts(bucket, upload, source);
    check(sha256);
    const call = { bucket, key, bytes, condition, writer, retries: bucket.openRetryWindow(what, bytes) };
    result = await writeOnce(call, (required) =>
      bucket.attempt(async (s3, options) => {
        const complete = { ...upload, MultipartUpload: { Parts }, ...required };
        return (await s3.completeMultipartUpload(complete, options)).ETag;
      }, bytes),
    );
    return result;
  } finally {
    if (result === 'conflict') await bucket.attempt((s3, options) => s3.abortMultipartUpload(upload, options));
  }
}

/** Writes an object from a local file, in parts from `partBytes` on. Error: `file_damaged` if its hash differs. */
export async function putFile(
  bucket: S3Bucket,
  key: string,
  file: string,
  condition: Condition,
  sha256?: string,
): Promise<Tag | 'conflict'> {
  const handle = await openForReading(file);
  try {
    const { size } = await handle.stat();
    const source = {
      sizeBytes: size,
      read: (position: number, length: number) => readPart(handle, position, length),
    };
    return await putSource({ bucket, key, condition }, source, (hash) => assertHash(file, hash, sha256));
  } finally {
    await handle.close();
  }
}

/** Writes an object from a source, in parts from `partBytes` on. `check` gets its SHA-256 before it exists. */
export async function putSource(
  target: Pick<Call, 'bucket' | 'key' | 'condition'>,
  source: ByteSource,
  check: (sha256: string) => void,
): Promise<Tag | 'conflict'> {
  if (source.sizeBytes >= partBytes) return await putParts(target, source, check);
  const bytes = await source.read(0, source.sizeBytes);
  check(createHash('sha256').update(bytes).digest('hex'));
  return await putBytes(target.bucket, target.key, bytes, target.condition);
}
