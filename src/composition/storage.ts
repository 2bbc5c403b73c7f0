import { dataPaths, type Config } from '../config.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { describeError } from '../runtime/errors.ts';
import type { CompositionContext } from './context.ts';
import { ensureDataFolder } from '../runtime/files/data-format.ts';
import { readDiskSpace } from '../runtime/files/disk-watch.ts';
import type { BucketPlace, S3Folders, S3FoldersOptions } from '../runtime/store/s3-folders.ts';
import { assertStoredFormat } from '../runtime/store/stored-format.ts';

/** Limit of the local copies where the settings have none, bytes. */
const usualCacheBytes = 32 * 1024 ** 3;

/** The connected buckets of this process, and their options as text. */
let connected: { readonly text: string; readonly folders: S3Folders } | undefined;

/** Interval of the search for copies of removed objects, ms. */
const copiesSweepMs = 600_000;

/** Removes the local copies of objects that were removed, such as files with erased rows, from now on. */
export function startCopiesSweep({ closers, logger }: Pick<CompositionContext, 'closers' | 'logger'>): void {
  const { folders } = connected ?? {};
  if (folders === undefined) return;
  const sweep = async (): Promise<void> => {
    const copies = await folders.dropStaleCopies();
    if (copies > 0) logger.info({ copies }, 'local copies of removed files deleted');
  };
  const loop = startPollLoop(sweep, {
    everyMs: copiesSweepMs,
    onError: (error) => logger.warn({ error: describeError(error) }, 'cannot look for stale copies, will retry'),
  });
  closers.add('sweep of copies', () => loop.stop());
}

/** Parses `s3://BUCKET/PREFIX`. */
export function toPlace(url: string): BucketPlace {
  const [bucket = '', ...prefix] = url.slice('s3://'.length).split('/');
  return { bucket, prefix: prefix.join('/') };
}

const findPlace = (url: string | undefined): BucketPlace | null => (url === undefined ? null : toPlace(url));

/**
 * Connects the data folder to the buckets of the settings, for the whole process, and creates it. A service on a folder
 * loads no code for buckets. Sends no request. Error: `disk`.
 */
export async function connectBuckets(config: Config): Promise<void> {
  const { storage, dataDir, s3Endpoint, s3PathStyle, cacheMaxBytes, leaseMs } = config;
  if (Object.values(storage).every((place) => place === undefined)) return;
  const paths = dataPaths(dataDir);
  await ensureDataFolder(dataDir, [paths.cache]);
  const { sizeBytes } = await readDiskSpace(paths.cache);
  const options: S3FoldersOptions = {
    dataDir,
    places: {
      [dataDir]: findPlace(storage.state),
      [paths.lake]: findPlace(storage.lake),
      [paths.reports]: findPlace(storage.reports),
    },
    cacheMaxBytes: cacheMaxBytes > 0 ? cacheMaxBytes : Math.min(usualCacheBytes, Math.floor(sizeBytes / 2)),
    leaseMs,
    pathStyle: s3PathStyle,
    ...(s3Endpoint === undefined ? {} : { endpoint: s3Endpoint }),
  };
  const text = JSON.stringify(options);
  if (connected?.text === text) return;
  const { connectS3Folders } = await import('../runtime/store/s3-folders.ts');
  await connected?.folders.close();
  connected = { text, folders: await connectS3Folders(options) };
}

/**
 * Connects the buckets, and rejects a state that this program must not use. Errors: those of `connectBuckets` and
 * `assertStoredFormat`.
 */
export async function connectStorage(config: Config): Promise<void> {
  await connectBuckets(config);
  if (config.storage.state !== undefined) await assertStoredFormat(config.dataDir);
}
