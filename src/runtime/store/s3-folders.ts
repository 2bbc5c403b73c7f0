/**
 * Keeps the objects below folders of the data folder in S3 buckets. The data folder then is scratch, which may be lost:
 * work files, and `cache/` with verified copies of data files.
 */
import { hostname } from 'node:os';
import path from 'node:path';
import { createLeases } from './leases.ts';
import { openLocalCache } from './local-cache.ts';
import { connectFolders, openStore, type Connection, type Environment } from './open-store.ts';
import { openS3Bucket, type S3Bucket, type S3Settings } from './s3-bucket.ts';
import { createS3Store, type S3Store } from './s3-store.ts';

/** Where the objects below a folder are kept. */
export interface BucketPlace {
  readonly bucket: string;
  /** Start of the keys, without a slash at its end. */
  readonly prefix: string;
}

export interface S3FoldersOptions extends Omit<S3Settings, 'bucket'> {
  /** The data folder. */
  readonly dataDir: string;
  /** Places of the data folder and folders below it; null: the folder keeps its objects itself. */
  readonly places: Readonly<Record<string, BucketPlace | null>>;
  /** Maximum size of the local copies, bytes. */
  readonly cacheMaxBytes: number;
  /** Time after which a silent holder of a lease is replaced, ms. */
  readonly leaseMs: number;
}

export interface S3Folders {
  /**
   * Removes the local copies of objects that do not exist any more, such as files with erased rows. Returns their
   * number. Cost: a list of each folder that has copies.
   */
  dropStaleCopies(): Promise<number>;
  /** Opens the folders without a bucket again. No store may be in use. */
  close(): Promise<void>;
}

/** Silences the SDK's notice about later versions of it, also in child processes. */
const silenceNotice = (): string => (process.env['AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED'] ??= 'true');

/** Returns the variables by which the SDK finds its credentials. */
function findCredentials(): Environment {
  silenceNotice();
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith('AWS_') || name === 'HOME'));
}

type OpenBelow = (below: string) => S3Store;

/** Opens stores of one place. `below`: a relative path, empty or with `/`. */
function createOpen(bucket: S3Bucket, prefix: string, scratchFolder: string): OpenBelow {
  return (below) => {
    const keyParts = [prefix, below].filter((part) => part !== '');
    return createS3Store({ bucket, prefix: keyParts.map((part) => `${part}/`).join(''), scratchFolder });
  };
}

/** Opens the objects of a place to which no folder is connected. Loads the SDK and sends no request. */
export async function openS3Place(
  settings: Omit<S3Settings, 'bucket'>,
  { bucket: name, prefix }: BucketPlace,
  scratchFolder: string,
) {
  silenceNotice();
  const bucket = await openS3Bucket({ ...settings, bucket: name });
  return { open: createOpen(bucket, prefix, scratchFolder), close: () => bucket.close() };
}

/**
 * Connects folders to buckets for the whole process. Loads the SDK and sends no request. Errors: those of the disk, such
 * as a data folder that cannot be written.
 */
export async function connectS3Folders(options: S3FoldersOptions): Promise<S3Folders> {
  const { dataDir, places, cacheMaxBytes, leaseMs, ...settings } = options;
  const environment = findCredentials();
  const buckets = new Map<string, S3Bucket>();
  const opened = new Map<string, OpenBelow | undefined>();
  const cache = await openLocalCache({
    folder: path.join(dataDir, 'cache'),
    maxBytes: cacheMaxBytes,
    keyOf: ({ absolutePath }) => path.relative(dataDir, absolutePath),
    async fetch(key, localFile) {
      const file = path.join(dataDir, key);
      const deepestFirst = [...opened].toSorted(([a], [b]) => b.length - a.length);
      const [folder = '', open] = deepestFirst.find(([start]) => file.startsWith(start + path.sep)) ?? [];
      if (open === undefined) throw new Error(`${file} is in no bucket`);
      return await open('').fetch(path.relative(folder, file), localFile);
    },
  });
  for (const [folder, place] of Object.entries(places)) {
    if (place === null) {
      opened.set(folder, undefined);
      continue;
    }
    const bucket = buckets.get(place.bucket) ?? (await openS3Bucket({ ...settings, bucket: place.bucket }));
    buckets.set(place.bucket, bucket);
    opened.set(folder, createOpen(bucket, place.prefix, cache.folder));
  }
  const connect = ([folder, open]: readonly [string, OpenBelow | undefined]): Connection => ({
    folder,
    open,
    files: cache,
    filesFolder: cache.folder,
  });
  // Those of the state, which is the first place.
  const [open] = [...opened.values()].filter((place) => place !== undefined);
  const holder = `process ${process.pid} on ${hostname()}`;
  connectFolders(
    [...opened].map(connect),
    { options: JSON.stringify(options), environment },
    open && createLeases(open(''), { holder, leaseMs }),
  );
  return {
    async dropStaleCopies() {
      const copies = await cache.keys();
      const stale: string[] = [];
      for (const folder of new Set(copies.map((key) => key.split('/').slice(0, 2).join('/')))) {
        const stored = new Set(await openStore(path.join(dataDir, folder)).list(''));
        const isOwn = (key: string): boolean => key.startsWith(`${folder}/`);
        stale.push(...copies.filter((key) => isOwn(key) && !stored.has(key.slice(folder.length + 1))));
      }
      await cache.drop(stale);
      return stale.length;
    },
    async close() {
      connectFolders([]);
      await cache.close();
      for (const bucket of buckets.values()) bucket.close();
    },
  };
}
