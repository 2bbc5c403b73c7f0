import path from 'node:path';
import { readSnapshot } from '../lake/log/snapshot.ts';
import { lakePaths } from '../lake/lake.ts';
import { makeBackup, type BackupSource } from '../admin/backup/backup.ts';
import type { Config } from '../config.ts';
import { AppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { buildWithClosers } from '../runtime/lifecycle.ts';
import { createLogger, type Logger } from '../runtime/logger.ts';
import { startService } from '../service.ts';
import { openConnection } from '../stream/connection.ts';
import { openGuard } from '../stream/guard.ts';
import { openReader } from '../stream/reader.ts';
import { hasStream } from '../stream/stream-admin.ts';
import { defineDataCommand, type DataContext, type OpenData } from './command.ts';
import { findBroker } from './stop.ts';
import { flag, folder } from './option-specs.ts';

/** Rejects settings with a bucket: a backup has the data of a folder. Error: `usage`. */
export function assertInFolder({ storage }: Pick<Config, 'storage'>): void {
  const place = Object.values(storage).find((one) => one !== undefined);
  if (place === undefined) return;
  throw new AppError('usage', `a backup has the data of a folder, and the settings name ${place}`, {
    hint: "Use the versions or the replication of the bucket, or bring the data to a folder with 'tributary lake move --to DIR'.",
  });
}

/** Rejects a lake that reads an unknown stream, whose backlog would be left out. Error: `broker_away`. */
export async function assertNoStream({ config: { dataDir }, paths }: OpenData): Promise<void> {
  const { lake } = await readSnapshot(lakePaths(paths.lake).table);
  if (lake?.epoch === undefined || lake.restoredFrom !== undefined) return;
  throw new AppError(
    'broker_away',
    `the lake of ${dataDir} reads the stream ${lake.epoch.streamId}, and its broker is unknown`,
    { hint: 'Set TRIBUTARY_NATS_URL, or pass the data folder of the service that runs the broker.', retryable: false },
  );
}

/** Finds the stream of the running service, of the configured broker, or of an embedded broker started for the backup. */
function findStreamOf(context: DataContext, logger: Logger): BackupSource['withStream'] {
  const { config, paths, entry, environment, stop } = context;
  return async (work) => {
    const known = findBroker(config);
    if (known === undefined && !(await exists(path.join(paths.nats, 'store')))) {
      await assertNoStream(context);
      return work(undefined);
    }
    return buildWithClosers(logger, async (closers) => {
      try {
        if (known === undefined) {
          const service = await startService({ config, roles: [], entry, environment, logger, signal: stop });
          closers.add('broker', () => service.stop());
        }
        const brokerConnection = findBroker(config);
        if (brokerConnection === undefined)
          throw new AppError('broker_away', 'the service stopped while the backup started', {
            hint: 'Repeat the backup.',
          });
        const { url, streamName, isOwn } = brokerConnection;
        const connection = await openConnection({ url, name: 'tributary-backup', logger });
        closers.add('stream', () => connection.close());
        if (!(await hasStream(connection, streamName))) return await work(undefined);
        // An embedded broker has its store in the data folder: no other folder can own its stream.
        const guard = isOwn ? undefined : await openGuard(connection, { streamName, claimFile: paths.claim, logger });
        if (guard !== undefined) closers.add('stream guard', () => guard.stop());
        const reader = await openReader(connection, { streamName, ...(guard === undefined ? {} : { guard }) });
        closers.add('stream reader', () => reader.close());
        return await work(reader);
      } finally {
        await closers.stop();
      }
    });
  };
}

export const backupCommand = defineDataCommand({
  name: 'backup',
  summary: 'back up the data folder to DIR; the service may be running',
  arguments: { DIR: folder('backup folder, best on another disk; later runs copy changes only') },
  options: {
    link: flag('hard-link lake files instead of copying them, if DIR is on the same file system'),
  },
  examples: ['backup /mnt/backup/tributary'],
  async run({ DIR: dir, link }, context) {
    const { config, paths, clock, stop: signal } = context;
    assertInFolder(config);
    const logger = createLogger(config.logLevel, { role: 'backup' });
    const { dataDir, datasetsDir } = config;
    const source = { dataDir, paths, datasetsDir, withStream: findStreamOf(context, logger) };
    return makeBackup(source, path.resolve(dir), { clock, link, signal, logger });
  },
});
