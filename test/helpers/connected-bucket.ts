import path from 'node:path';
import { connectS3Folders, type S3Folders } from '../../src/runtime/store/s3-folders.ts';

/** A bucket of a test's server. */
export interface TestBucketOptions {
  readonly endpoint: string;
  readonly leaseMs: number;
}

/**
 * Keeps the state and the reports of a data folder in the bucket, for the whole process, as the settings of a service
 * do. Data folders of several processes then are those of several hosts.
 */
export async function connectTestBucket(dataDir: string, { endpoint, leaseMs }: TestBucketOptions): Promise<S3Folders> {
  return await connectS3Folders({
    dataDir,
    places: {
      [dataDir]: { bucket: 'lake', prefix: 'state' },
      [path.join(dataDir, 'reports')]: { bucket: 'lake', prefix: 'reports' },
    },
    endpoint,
    pathStyle: true,
    credentials: { accessKeyId: 'tester', secretAccessKey: 'secret' },
    cacheMaxBytes: 1024 ** 3,
    leaseMs,
  });
}
