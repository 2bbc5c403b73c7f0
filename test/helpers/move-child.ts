import { mkdirSync } from 'node:fs';
import { moveData } from '../../src/admin/move/move.ts';
import { openBucket, openFolder, openSource, type MoveTarget } from '../../src/admin/move/places.ts';
import { toPlace } from '../../src/composition/storage.ts';
import { dataPaths } from '../../src/config.ts';
import { createCrashPoint } from '../../src/runtime/crash-point.ts';
import { isAppError } from '../../src/runtime/errors.ts';
import { createLogger } from '../../src/runtime/logger.ts';
import { connectS3Folders, openS3Place } from '../../src/runtime/store/s3-folders.ts';
import type { S3Settings } from '../../src/runtime/store/s3-bucket.ts';

/** The argument of the process, as JSON. */
export interface MoveChildSettings {
  readonly s3: Omit<S3Settings, 'bucket'>;
  readonly dataDir: string;
  /** Address of the data, which the data folder has otherwise. */
  readonly from?: string;
  /** Address, or path of a folder. */
  readonly to: string;
  /** The crash point at which the process is killed. */
  readonly crashAt?: string;
}

async function openTarget({ s3, dataDir, to }: MoveChildSettings): Promise<MoveTarget> {
  if (to.startsWith('s3://')) return openBucket(to, (await openS3Place(s3, toPlace(to), dataDir)).open);
  mkdirSync(to, { recursive: true });
  return openFolder(to, dataPaths(to));
}

/** Moves data, without locks and without a stream. Prints the result, or the code of the error. */
async function main(settings: MoveChildSettings): Promise<void> {
  const { s3, dataDir, from, crashAt } = settings;
  const paths = dataPaths(dataDir);
  if (from !== undefined)
    await connectS3Folders({
      ...s3,
      dataDir,
      places: {
        [dataDir]: toPlace(`${from}/state`),
        [paths.lake]: toPlace(`${from}/lake`),
        [paths.reports]: toPlace(`${from}/reports`),
      },
      cacheMaxBytes: 1 << 30,
      leaseMs: 15_000,
    });
  const isScratch = from !== undefined;
  const source = openSource({ name: from ?? dataDir, dataDir, paths, isScratch, runsBroker: true });
  const result = await moveData(source, await openTarget(settings), {
    signal: new AbortController().signal,
    logger: createLogger(process.env['TEST_LOG'] ?? 'silent'),
    crashPoint: createCrashPoint(crashAt),
    assertAlone: () => Promise.resolve(),
    onProgress: () => undefined,
  }).catch((error: unknown) => {
    if (isAppError(error)) return { code: error.code, message: error.message };
    throw error;
  });
  process.stdout.write(`${JSON.stringify(result ?? null)}\n`, () => process.exit());
}

void main(JSON.parse(process.argv[2] ?? '') as MoveChildSettings);
