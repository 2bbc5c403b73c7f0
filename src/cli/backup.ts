import path from 'node:path';
import { readSnapshot } from '../lake/log/snapshot.ts';
import { lakePaths } from '../lake/lake.ts';
import { makeBackup, type BackupSource } from '../operate/backup/backup.ts';
import { AppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { buildWithClosers } from '../runtime/lifecycle.ts';
import { createLogger, type Logger } from '../runtime/logger.ts';
import { startService } from '../service.ts';
import { openConnection } from '../stream/connection.ts';
import { openGuard } from '../stream/guard.ts';
import { openReader } from '../stream/reader.ts';
import { hasStream } from '../stream/topology.ts';
import { dataVerb, type DataContext, type OpenData } from './command.ts';
import { findBroker } from './stop.ts';
import { flag, folder } from './words.ts';

/** Refuses a folder whose lake follows an unknown stream: the backup would lack its backlog. */
async function assertNoStream({ config: { dataDir }, paths }: OpenData): Promise<void> {
  const { lake } = await readSnapshot(lakePaths(paths.lake).table);
  if (lake?.epoch === undefined || lake.restoredFrom !== undefined) return;
  throw new AppError(
    'broker_away',
    `the lake of ${dataDir} follows the stream ${lake.epoch.streamId}, and no broker is known that has it`,
    { hint: 'Name the broker by TRIBUTARY_NATS_URL, or start the service, and repeat the backup.', retryable: false },
  );
}

/** Finds the stream: of the running service, of the named broker, or of the folder's own broker, started for this. */
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
        const broker = findBroker(config);
        if (broker === undefined)
          throw new AppError('broker_away', 'the service ended while the backup began', { hint: 'Repeat the backup.' });
        const { url, streamName, isOwn } = broker;
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

export const backupCommand = dataVerb({
  name: 'backup',
  summary: 'back the data folder up into DIR, while the service runs or not',
  words: { DIR: folder('a folder of its own, best on another disk; a later run adds what has changed') },
  options: {
    link: flag(
      'hard links to the files of the lake, where DIR is on the same file system: no second copy of their bytes',
    ),
  },
  examples: ['backup /mnt/backup/tributary'],
  run: ({ DIR: dir, link }, context) => {
    const { config, paths, clock, stop: signal } = context;
    const logger = createLogger(config.logLevel, { role: 'backup' });
    const { dataDir, datasetsDir } = config;
    const source = { dataDir, paths, datasetsDir, withStream: findStreamOf(context, logger) };
    return makeBackup(source, path.resolve(dir), { clock, link, signal, logger });
  },
});
