import path from 'node:path';
import { dataPaths } from '../config.ts';
import { eraseEvents, type ErasureTarget } from '../compact/erase.ts';
import { openDuckdb } from '../lake/duckdb.ts';
import { ensureLake, isCompactorRunning, lakePaths } from '../lake/lake.ts';
import { openTable } from '../lake/table.ts';
import { createClock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { buildWithClosers } from '../runtime/lifecycle.ts';
import { createLogger } from '../runtime/logger.ts';
import { readServiceStates } from '../runtime/service-state.ts';
import { startService } from '../service.ts';
import { openConnection } from '../stream/connection.ts';
import { openGuard } from '../stream/guard.ts';
import { openPublisher } from '../stream/publisher.ts';
import { parseId, parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary erase [--user ID] [--device ID] [--app ID] [--data DIR]';

/**
 * `tributary erase`: removes the events of a user, a device or an app (of several named, those that match all) for good.
 * With the service stopped, it runs its own broker and compactor for as long as it takes.
 */
export const eraseCommand: Command = {
  name: 'erase',
  usage,
  summary: 'remove the events of a user, a device or an app for good',
  async run(args, { environment, entry, answer, stop }) {
    const { values } = parseWords(args, [], { user: { type: 'string' }, device: { type: 'string' }, app: { type: 'string' } }, usage);
    const target: ErasureTarget = {
      ...(values.user === undefined ? {} : { user: values.user }),
      ...(values.device === undefined ? {} : { device: values.device }),
      ...(values.app === undefined ? {} : { app: parseId(values.app, '--app') }),
    };
    if (Object.keys(target).length === 0) throw new AppError('usage', "'erase' needs --user, --device or --app", { hint: `Usage: ${usage}` });
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    const { claim, lake: lakeDir, run, tmp } = dataPaths(config.dataDir);
    const clock = createClock(config.clockOffsetSeconds);
    const logger = createLogger(config.logLevel, { role: 'erase' });
    await ensureLake(lakeDir, { clock, retentionMs: config.retentionMs });

    const closers = await buildWithClosers(logger, async (opened) => {
      if (!isCompactorRunning(lakeDir)) {
        const service = await startService({ config, roles: ['compact'], entry, environment, logger });
        opened.add('service', () => service.stop());
      }
      const [running] = readServiceStates(run);
      const url = config.natsUrl ?? running?.natsUrl;
      if (url === undefined) throw new AppError('broker_away', 'cannot find the broker of the running service', { hint: 'Name it by TRIBUTARY_NATS_URL.' });
      const connection = await openConnection({ url, name: 'tributary erase', logger });
      opened.add('stream', () => connection.close());
      const guard = await openGuard(connection, { streamName: running?.streamName ?? config.streamName, claimFile: claim });
      opened.add('stream guard', () => guard.stop());
      const duckdb = await openDuckdb({ memoryMb: config.duckdbMemoryMb, threads: 2, tempDir: path.join(tmp, 'erase') });
      opened.add('duckdb', () => duckdb.close());
      const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
      answer(await eraseEvents({ table, lakeDir, duckdb, publisher: openPublisher(connection, guard), clock, crashPoint: noCrashPoint, signal: stop }, target));
      return opened;
    });
    await closers.stop();
  },
};
