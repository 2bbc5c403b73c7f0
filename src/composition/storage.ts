import { dataPaths, type Config } from '../config.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { describeError } from '../runtime/errors.ts';
import type { CompositionContext } from './context.ts';
import { ensureDataFolder } from '../runtime/files/data-format.ts';
import { readDiskSpace } from '../runtime/files/disk-watch.ts';
import type { BucketPlace, S3Folders, S3FoldersOptions } from '../runtime/store/s3-folders.ts';

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
function toPlace(url: string | undefined): BucketPlace | null {
  if (url === undefined) return null;
  const [bucket = '', ...prefix] = url.slice('s3://'.length).split('/');
  return { bucket, prefix: prefix.join('/') };
}

/**
 * Connects the data folder to the buckets of the settings, for the whole process, and creates it. A service on a folder
 * loads no code for buckets. Errors: `disk`; `data_format` if a newer program has used the state; `store_away`,
 * `store_refused`.
 */
export async function connectStorage(config: Config): Promise<void> {
  const { storage, dataDir, s3Endpoint, s3PathStyle, cacheMaxBytes, leaseMs } = config;
  if (Object.values(storage).every((place) => place === undefined)) return;
  const paths = dataPaths(dataDir);
  await ensureDataFolder(dataDir, [paths.cache]);
  const { sizeBytes } = await readDiskSpace(paths.cache);
  const options: S3FoldersOptions = {
    dataDir,
    places: {
      [dataDir]: toPlace(storage.state),
      [paths.lake]: toPlace(storage.lake),
      [paths.reports]: toPlace(storage.reports),
    },
    cacheMaxBytes: cacheMaxBytes > 0 ? cacheMaxBytes : Math.min(usualCacheBytes, Math.floor(sizeBytes / 2)),
    leaseMs,
    pathStyle: s3PathStyle,
    ...(s3Endpoint === undefined ? {} : { endpoint: s3Endpoint }),
  };
  const text = JSON.stringify(options);
  if (connected?.text === text) return;
  const { connectS3Folders, assertBucketFormat } = await import('../runtime/store/s3-folders.ts');
  await connected?.folders.close();
  connected = { text, folders: await connectS3Folders(options) };
  if (storage.state !== undefined) await assertBucketFormat(dataDir);
}
