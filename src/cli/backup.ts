import path from 'node:path';
import { dataPaths, type Config } from '../config.ts';
import { readSnapshot } from '../lake/log/snapshot.ts';
import { lakePaths } from '../lake/lake.ts';
import { makeBackup, type BackupSource } from '../operate/backup/backup.ts';
import { AppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { buildWithClosers } from '../runtime/lifecycle.ts';
import { createLogger, type Logger } from '../runtime/logger.ts';
import { readServiceStates } from '../runtime/processes/service-state.ts';
import { startService } from '../service.ts';
import { openConnection } from '../stream/connection.ts';
import { openGuard } from '../stream/guard.ts';
import { openReader } from '../stream/reader.ts';
import { hasStream } from '../stream/topology.ts';
import { verb, type CommandContext, openData } from './command.ts';
import { flag, folder } from './words.ts';

/** Refuses a folder whose lake has followed a stream that is nowhere to be found: what waits in it would be missing. */
async function assertNoStream({ dataDir }: Config): Promise<void> {
  const { lake } = await readSnapshot(lakePaths(dataPaths(dataDir).lake).table);
  if (lake?.epoch === undefined || lake.restoredFrom !== undefined) return;
  throw new AppError(
    'broker_away',
    `the lake of ${dataDir} follows the stream ${lake.epoch.streamId}, and no broker is known that has it`,
    { hint: 'Name the broker by TRIBUTARY_NATS_URL, or start the service, and repeat the backup.', retryable: false },
  );
}

/**
 * Finds the stream of a data folder: of the service that runs on it, of the broker that is named, or of the folder's
 * own broker, which then runs for this.
 */
function findStreamOf(
  config: Config,
  logger: Logger,
  { entry, environment, stop }: Pick<CommandContext, 'entry' | 'environment' | 'stop'>,
): BackupSource['withStream'] {
  const paths = dataPaths(config.dataDir);
  return async (work) => {
    // A service of the export role alone has no broker, and says nothing of the stream.
    const find = () => readServiceStates(paths.run).find(({ natsUrl }) => natsUrl !== undefined);
    const running = find();
    if ((running?.natsUrl ?? config.natsUrl) === undefined && !(await exists(path.join(paths.nats, 'store')))) {
      await assertNoStream(config);
      return work(undefined);
    }
    return buildWithClosers(logger, async (closers) => {
      try {
        const isOwn =
          running === undefined
            ? config.natsUrl === undefined
            : running.processes.some(({ name }) => name === 'nats-server');
        if (running === undefined && isOwn) {
          const broker = await startService({ config, roles: [], entry, environment, logger, signal: stop });
          closers.add('broker', () => broker.stop());
        }
        const { natsUrl: url = config.natsUrl, streamName = config.streamName } = find() ?? {};
        if (url === undefined)
          throw new AppError('broker_away', 'the service ended while the backup began', { hint: 'Repeat the backup.' });
        const connection = await openConnection({ url, name: 'tributary-backup', logger });
        closers.add('stream', () => connection.close());
        if (!(await hasStream(connection, streamName))) return await work(undefined);
        // The store of the service's own broker lies in the data folder: what is in it is nobody else's.
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

/** `tributary backup DIR`: makes, or renews, the backup of the data folder, with the service running or stopped. */
export const backupCommand = verb({
  name: 'backup',
  summary: 'back the data folder up into DIR, while the service runs or not',
  words: { DIR: folder('a folder of its own, best on another disk; a later run adds what has changed') },
  options: {
    link: flag(
      'hard links to the files of the lake, where DIR is on the same file system: no second copy of their bytes',
    ),
  },
  examples: ['backup /mnt/backup/tributary'],
  async run({ DIR: dir, link, data }, { environment, entry, answer, stop }) {
    const { config, paths, clock } = openData(data, { environment });
    const { dataDir } = config;
    const logger = createLogger(config.logLevel, { role: 'backup' });
    const source = {
      dataDir,
      paths,
      datasetsDir: config.datasetsDir,
      withStream: findStreamOf(config, logger, { entry, environment, stop }),
    };
    answer(await makeBackup(source, path.resolve(dir), { clock, link, signal: stop, logger }));
  },
});
