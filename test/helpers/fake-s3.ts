import { createHash } from 'node:crypto';
import { onTestFinished } from 'vitest';
import { openS3Bucket, type S3Limits } from '../../src/runtime/store/s3-bucket.ts';
import { createS3Store, type S3Store } from '../../src/runtime/store/s3-store.ts';
import { testFolder } from './folder.ts';
import { errorAnswer, startS3Proxy, type S3Answer, type S3Proxy, type S3Request } from './s3-proxy.ts';

interface FakeObject {
  readonly bytes: Buffer;
  readonly etag: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/** What a server does otherwise than S3. */
export interface FakeFlaws {
  readonly ignoresConditions?: boolean;
  readonly losesMetadata?: boolean;
  readonly lacksRemovalOfMany?: boolean;
  /** Keys of one page of a list. */
  readonly pageKeys?: number;
}

/** A server of one bucket in memory, without signatures and parts. */
export interface FakeS3 extends S3Proxy {
  readonly objects: Map<string, FakeObject>;
  /** Methods and paths of all requests so far. */
  readonly asked: string[];
}

function findRefusal({ headers }: S3Request, found: FakeObject | undefined): S3Answer | undefined {
  const isTaken = headers['if-none-match'] === '*' && found !== undefined;
  const match = headers['if-match'];
  if (match !== undefined && found === undefined) return errorAnswer(404, 'NoSuchKey');
  return isTaken || (match !== undefined && match !== found?.etag) ? errorAnswer(412, 'PreconditionFailed') : undefined;
}

const isMetadata = ([name]: [string, unknown]): boolean => name.startsWith('x-amz-meta-');

function put(objects: FakeS3['objects'], key: string, asked: S3Request, flaws: FakeFlaws): S3Answer {
  const refusal = flaws.ignoresConditions === true ? undefined : findRefusal(asked, objects.get(key));
  if (refusal !== undefined) return refusal;
  const etag = `"${createHash('md5').update(asked.body).digest('hex')}"`;
  const metadata = flaws.losesMetadata === true ? [] : Object.entries(asked.headers).filter(isMetadata);
  objects.set(key, { bytes: asked.body, etag, metadata: Object.fromEntries(metadata) as Record<string, string> });
  return { status: 200, headers: { etag } };
}

function copy(objects: FakeS3['objects'], key: string, source: string): S3Answer {
  const found = objects.get(decodeURIComponent(source.split('/').slice(1).join('/')));
  if (found === undefined) return errorAnswer(404, 'NoSuchKey');
  objects.set(key, found);
  return { status: 200, body: `<CopyObjectResult><ETag>${found.etag}</ETag></CopyObjectResult>` };
}

function list(objects: FakeS3['objects'], query: URLSearchParams, { pageKeys = 1000 }: FakeFlaws): S3Answer {
  const after = query.get('continuation-token') ?? '';
  const prefix = query.get('prefix') ?? '';
  const all = [...objects.keys()].filter((key) => key.startsWith(prefix) && key > after);
  const isFolder = (key: string): boolean => query.has('delimiter') && key.slice(prefix.length).includes('/');
  const folders = new Set(all.filter(isFolder).map((key) => key.slice(0, key.indexOf('/', prefix.length) + 1)));
  const keys = all.filter((key) => !isFolder(key));
  const page = keys.toSorted().slice(0, pageKeys);
  const next = page.length < keys.length ? `<NextContinuationToken>${page.at(-1)}</NextContinuationToken>` : '';
  const contents = page.map((key) => `<Contents><Key>${key}</Key></Contents>`).join('');
  const isTruncated = `<IsTruncated>${next !== ''}</IsTruncated>`;
  const common = [...folders].map((folder) => `<CommonPrefixes><Prefix>${folder}</Prefix></CommonPrefixes>`).join('');
  return { status: 200, body: `<ListBucketResult>${isTruncated}${contents}${common}${next}</ListBucketResult>` };
}

function removeMany(objects: FakeS3['objects'], { body }: S3Request, flaws: FakeFlaws): S3Answer {
  if (flaws.lacksRemovalOfMany === true) return errorAnswer(501, 'NotImplemented');
  const keys = [...body.toString().matchAll(/<Key>(.*?)<\/Key>/g)].map(([, key = '']) => key);
  if (keys.length > 1000) return errorAnswer(400, 'MalformedXML');
  for (const key of keys) objects.delete(key);
  return { status: 200, body: '<DeleteResult></DeleteResult>' };
}

/** Starts a server for a test. `objects`: those of another server, for a host with its own network. */
export async function startFakeS3(flaws: FakeFlaws = {}, objects: FakeS3['objects'] = new Map()): Promise<FakeS3> {
  const asked: string[] = [];
  const proxy = await startS3Proxy(async (one) => {
    const { pathname, searchParams: query } = new URL(one.url, 'http://fake');
    const key = decodeURIComponent(pathname.split('/').slice(2).join('/'));
    asked.push(query.has('list-type') ? `LIST ${query.get('prefix')}` : `${one.method} ${key}`);
    const found = objects.get(key);
    const source = one.headers['x-amz-copy-source'];
    if (one.method === 'PUT' && source !== undefined) return copy(objects, key, String(source));
    if (one.method === 'PUT') return put(objects, key, one, flaws);
    if (one.method === 'POST') return removeMany(objects, one, flaws);
    if (one.method === 'DELETE') {
      objects.delete(key);
      return { status: 204 };
    }
    if (query.has('list-type')) return list(objects, query, flaws);
    if (found === undefined) return errorAnswer(404, 'NoSuchKey');
    if (one.headers['if-none-match'] === found.etag) return { status: 304 };
    const match = one.headers['if-match'];
    if (match !== undefined && match !== found.etag) return errorAnswer(412, 'PreconditionFailed');
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(one.headers.range ?? '') ?? [];
    if (first !== undefined) {
      const body = found.bytes.subarray(Number(first), Number(last) + 1);
      const range = `bytes ${first}-${Number(first) + body.length - 1}/${found.bytes.length}`;
      return { status: 206, headers: { etag: found.etag, 'content-range': range }, body };
    }
    const length = String(found.bytes.length);
    const wanted = Object.fromEntries(
      ['content-type', 'content-disposition', 'cache-control'].flatMap((name) => {
        const value = query.get(`response-${name}`);
        return value === null ? [] : [[name, value]];
      }),
    );
    return {
      status: 200,
      headers: { ...found.metadata, ...wanted, etag: found.etag, 'content-length': length },
      body: found.bytes,
    };
  });
  return Object.assign(proxy, { objects, asked });
}

/** Settings of a bucket of such a server. */
export const fakeBucket = (endpoint: string) => ({
  bucket: 'lake',
  endpoint,
  pathStyle: true,
  credentials: { accessKeyId: 'tester', secretAccessKey: 'secret' },
});

/** Opens a store in a server, until the test ends. */
export async function openFakeStore({ endpoint }: FakeS3, limits: Partial<S3Limits> = {}): Promise<S3Store> {
  const bucket = await openS3Bucket({ ...fakeBucket(endpoint), limits });
  onTestFinished(() => bucket.close());
  return createS3Store({ bucket, prefix: 'a/', scratchFolder: testFolder() });
}
