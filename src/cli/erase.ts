import path from 'node:path';
import { dataPaths, type Config } from '../config.ts';
import { listApps } from '../access/listing.ts';
import { eraseEvents, surveyErasure, type ErasureSurvey } from '../operate/erase/erase.ts';
import type { ErasureTarget } from '../operate/erase/erase-target.ts';
import { openCommandEngine } from '../lake/command-engine.ts';
import { ensureLake, isCompactorRunning, lakePaths } from '../lake/lake.ts';
import { openTable } from '../lake/log/table.ts';
import { createClock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { buildWithClosers } from '../runtime/lifecycle.ts';
import { createLogger } from '../runtime/logger.ts';
import { readServiceStates } from '../runtime/processes/service-state.ts';
import { startService } from '../service.ts';
import { openConnection } from '../stream/connection.ts';
import { openGuard } from '../stream/guard.ts';
import { openPublisher } from '../stream/publisher.ts';
import { parseWords, resolveConfig, type Command } from './command.ts';
import { assertOneMeaning, eraseOptions, eraseUsage as usage, parseErasure } from './erase-words.ts';

/**
 * The engine's part of the memory that the setting allows the process: the rest is for the program and what the engine
 * does not count.
 */
function engineLimits({ duckdbMemoryMb }: Config): { memoryMb: number; threads: number } {
  return { memoryMb: Math.max(128, Math.ceil(duckdbMemoryMb / 2)), threads: duckdbMemoryMb < 1024 ? 1 : 2 };
}

/** Looks what would be erased of what the lake has. */
async function lookThrough(config: Config, target: ErasureTarget): Promise<ErasureSurvey> {
  const { lake: lakeDir } = dataPaths(config.dataDir);
  const engine = await openCommandEngine(lakeDir, engineLimits(config));
  try {
    const table = await openTable(lakePaths(lakeDir).table, {
      clock: createClock(config.clockOffsetSeconds),
      crashPoint: noCrashPoint,
    });
    return await surveyErasure({ table, lakeDir, duckdb: engine.duckdb, crashPoint: noCrashPoint }, target);
  } finally {
    await engine.close();
  }
}

/**
 * `tributary erase`: removes the events of users, of devices or of an app (of several named, those that match all) for
 * good. With the service stopped, it runs its own broker and compactor for as long as it takes.
 */
export const eraseCommand: Command = {
  name: 'erase',
  usage,
  summary: 'remove the events of users, devices or an app for good',
  details: [
    '--user, --device, --app   whose events; of several words, those that match all',
    '--file      ids, one a line, of users or, with --as device, of devices',
    '--kind      what kind of user id it is, where several are meant',
    '--account   the apps of one account only',
    '--dry-run   count, and change nothing',
    '--yes       do not ask on a terminal',
    '--now       wait for no reader of the lake: its queries may fail',
  ],
  async run(args, { environment, entry, answer, note, confirm, stop }) {
    const { values } = parseWords(args, [], eraseOptions, usage);
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    const paths = dataPaths(config.dataDir);
    const { claim, lake: lakeDir, run, nats } = paths;
    const listAllApps = () => [...listApps(paths), ...listApps(paths, true)];
    const target = await parseErasure(values, listAllApps);
    const { retentionMs } = config;
    const clock = createClock(config.clockOffsetSeconds);
    const logger = createLogger(config.logLevel, { role: 'erase' });
    await ensureLake(lakeDir, { clock, retentionMs });
    const isDry = values['dry-run'] === true;
    if (isDry || (values.yes !== true && confirm !== undefined)) {
      const survey = await lookThrough(config, target);
      assertOneMeaning(survey.meanings, target, listAllApps);
      const { rows, failedEvents, filesToRewrite } = survey;
      if (isDry) return answer({ dryRun: true, rows, failedEvents, filesToRewrite });
      const history =
        values.now === true
          ? 'now, and whoever still reads ends with an error'
          : `at ${new Date(clock.nowMs() + retentionMs).toISOString()}`;
      note(
        `${rows} events in ${filesToRewrite} files and ${failedEvents} failed events match, and what still waits in the stream. They are removed for good; the lake's history before this moment goes with them, ${history}.`,
      );
      if (!(await confirm?.('Erase them?')))
        throw new AppError('usage', 'nothing was erased', { hint: 'Answer yes, or pass --yes.' });
    }

    const closers = await buildWithClosers(logger, async (opened) => {
      // A compactor that was killed comes back by itself.
      const isKept = readServiceStates(run).some(({ processes }) => processes.some(({ name }) => name === 'compact'));
      if (!isKept && !isCompactorRunning(lakeDir)) {
        const service = await startService({ config, roles: ['compact'], entry, environment, logger });
        opened.add('service', () => service.stop());
      }
      const running = readServiceStates(run).find((state) => state.natsUrl !== undefined);
      const url = config.natsUrl ?? running?.natsUrl;
      if (url === undefined)
        throw new AppError('broker_away', 'cannot find the broker of the running service', {
          hint: 'Name it by TRIBUTARY_NATS_URL.',
        });
      const connection = await openConnection({ url, name: 'tributary erase', logger });
      opened.add('stream', () => connection.close());
      const guard = await openGuard(connection, {
        streamName: running?.streamName ?? config.streamName,
        claimFile: claim,
        logger,
      });
      opened.add('stream guard', () => guard.stop());
      const engine = await openCommandEngine(lakeDir, engineLimits(config));
      opened.add('duckdb', () => engine.close());
      const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
      const storeDir = config.natsUrl === undefined ? { storeDir: path.join(nats, 'store') } : {};
      const dependencies = {
        table,
        lakeDir,
        duckdb: engine.duckdb,
        publisher: openPublisher(connection, guard),
        clock,
        crashPoint: noCrashPoint,
        signal: stop,
        ...storeDir,
      };
      const erased = await eraseEvents(dependencies, target, {
        retentionMs,
        now: values.now === true,
        assertMeant: (found) => assertOneMeaning(found, target, listAllApps),
      });
      // An export may have begun to read just before.
      const reportsEndBy = new Date(
        clock.nowMs() + config.exportTimeoutMs + config.linkTtlSeconds * 1000,
      ).toISOString();
      answer({ ...erased, reportsEndBy });
      return opened;
    });
    await closers.stop();
  },
};
