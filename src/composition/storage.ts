import { dataPaths, type Config } from '../config.ts';
import { ensureDataFolder } from '../runtime/files/data-format.ts';
import { readDiskSpace } from '../runtime/files/disk-watch.ts';
import type { BucketPlace } from '../runtime/store/s3-folders.ts';
import { assertStoredFormat } from '../runtime/store/stored-format.ts';

/** Limit of the local copies where the settings have none, bytes. */
const usualCacheBytes = 32 * 1024 ** 3;

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
  const { storage, dataDir, s3Endpoint, s3PathStyle, cacheMaxBytes } = config;
  if (Object.values(storage).every((place) => place === undefined)) return;
  const paths = dataPaths(dataDir);
  await ensureDataFolder(dataDir, [paths.cache]);
  const { sizeBytes } = await readDiskSpace(paths.cache);
  const { connectS3Folders } = await import('../runtime/store/s3-folders.ts');
  await connectS3Folders({
    dataDir,
    places: {
      [dataDir]: findPlace(storage.state),
      [paths.lake]: findPlace(storage.lake),
      [paths.reports]: findPlace(storage.reports),
    },
    cacheMaxBytes: cacheMaxBytes > 0 ? cacheMaxBytes : Math.min(usualCacheBytes, Math.floor(sizeBytes / 2)),
    leaseMs: config.leaseMs,
    pathStyle: s3PathStyle,
    ...(s3Endpoint === undefined ? {} : { endpoint: s3Endpoint }),
  });
}

/**
 * Connects the buckets, and rejects a state that this program must not use. Errors: those of `connectBuckets` and
 * `assertStoredFormat`.
 */
export async function connectStorage(config: Config): Promise<void> {
  await connectBuckets(config);
  if (config.storage.state !== undefined) await assertStoredFormat(config.dataDir);
}
