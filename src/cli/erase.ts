import { dataPaths, type Config } from '../config.ts';
import type { ErasureTarget } from '../operate/erase/erase-target.ts';
import { forgetIds, type ForgottenIds } from '../operate/lists/add-segment.ts';
import { type Clock, createClock } from '../runtime/clock.ts';
import path from 'node:path';
import { listApps } from '../access/apps.ts';
import { eraseEvents, surveyErasure, type ErasureSurvey } from '../operate/erase/erase.ts';
import { openCommandEngine } from '../lake/command-engine.ts';
import { removeRefusals } from '../refusals/refusal-files.ts';
import { ensureLake, isCompactorRunning, lakePaths } from '../lake/lake.ts';
import { openTable } from '../lake/log/table.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { buildWithClosers, type Closers } from '../runtime/lifecycle.ts';
import { clearWorkRooms } from '../runtime/files/work-files.ts';
import { createLogger, type Logger } from '../runtime/logger.ts';
import { readServiceStates } from '../runtime/processes/service-state.ts';
import { startService } from '../service.ts';
import { openConnection } from '../stream/connection.ts';
import { openGuard } from '../stream/guard.ts';
import { openPublisher } from '../stream/publisher.ts';
import { verb, type CommandContext, queryRooms, openData } from './command.ts';
import { assertOneMeaning, eraseOptions, parseErasure, type AccountOfApp } from './erase-words.ts';

/**
 * The ids that an erasure takes out of segments: those of users (custom ones) or of devices, of one account where it
 * is named. None where only some of a person's events are meant: those of one app, or of a user on one device.
 */
export function findForgotten(
  { users, userKind, devices }: ErasureTarget,
  { app, account }: { readonly app?: number | undefined; readonly account?: number | undefined },
): ForgottenIds | undefined {
  if (app !== undefined || (users !== undefined && devices !== undefined)) return undefined;
  const within = account === undefined ? {} : { idAccount: account };
  if (devices !== undefined) return { kind: 'device', ids: devices, ...within };
  const isCustom = userKind === undefined || userKind === 'custom';
  return users !== undefined && isCustom ? { kind: 'custom', ids: users, ...within } : undefined;
}

/** Takes the ids of an erasure out of segments; returns how many segments had any. Errors: those of `forgetIds`. */
async function eraseFromSegments(
  config: Config,
  forgotten: ForgottenIds | undefined,
  clock: Clock,
  signal: AbortSignal,
): Promise<number> {
  if (forgotten === undefined) return 0;
  const options = { clock, memoryMb: config.duckdbMemoryMb, signal };
  return forgetIds(dataPaths(config.dataDir).segments, forgotten, options);
}

/**
 * The engine's part of the memory that the setting allows the process: the rest is for the program and what the engine
 * does not count.
 */
function engineLimits({ duckdbMemoryMb }: Config): { memoryMb: number; threads: number } {
  return { memoryMb: Math.max(128, Math.ceil(duckdbMemoryMb / 2)), threads: duckdbMemoryMb < 1024 ? 1 : 2 };
}

/** Counts what would be erased of what the lake has. */
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

/** An erasure that was asked for: whose events, of which data folder. */
interface Erasure {
  readonly config: Config;
  readonly target: ErasureTarget;
  /** The ids that go from segments, too. */
  readonly forgotten: ForgottenIds | undefined;
  /** For the meaning of an id: whose the apps are that it stands in. */
  readonly listAllApps: () => readonly AccountOfApp[];
  readonly context: CommandContext;
  readonly clock: Clock;
  /** Wait for no reader of the lake. */
  readonly now: boolean;
}

/** Tells a person how much would be erased, and when the history of it goes; throws `usage` unless the answer is yes. */
async function confirmErasure(erasure: Erasure, survey: ErasureSurvey): Promise<void> {
  const { config, clock, now, context } = erasure;
  const { rows, failedEvents, filesToRewrite } = survey;
  const history = now
    ? 'now, and whoever still reads ends with an error'
    : `at ${new Date(clock.nowMs() + config.retentionMs).toISOString()}`;
  context.note(
    `${rows} events in ${filesToRewrite} files and ${failedEvents} failed events match, and what still waits in the stream. They are removed for good; the lake's history before this moment goes with them, ${history}.`,
  );
  if (!(await context.confirm?.('Erase them?')))
    throw new AppError('usage', 'nothing was erased', { hint: 'Answer yes, or pass --yes.' });
}

/** Opens the stream of the running service, or of one that is started for as long as the erasure takes. */
async function openErasureStream({ config, context }: Erasure, logger: Logger, closers: Closers) {
  const { claim, lake: lakeDir, run } = dataPaths(config.dataDir);
  // A compactor that was killed comes back by itself.
  const isSupervised = readServiceStates(run).some(({ processes }) => processes.some(({ name }) => name === 'compact'));
  if (!isSupervised && !isCompactorRunning(lakeDir)) {
    const { entry, environment } = context;
    const service = await startService({ config, roles: ['compact'], entry, environment, logger });
    closers.add('service', () => service.stop());
  }
  const running = readServiceStates(run).find((state) => state.natsUrl !== undefined);
  const url = config.natsUrl ?? running?.natsUrl;
  if (url === undefined)
    throw new AppError('broker_away', 'cannot find the broker of the running service', {
      hint: 'Name it by TRIBUTARY_NATS_URL.',
    });
  const connection = await openConnection({ url, name: 'tributary erase', logger });
  closers.add('stream', () => connection.close());
  const streamName = running?.streamName ?? config.streamName;
  const guard = await openGuard(connection, { streamName, claimFile: claim, logger });
  closers.add('stream guard', () => guard.stop());
  return openPublisher(connection, guard);
}

/** Erases, and answers what was erased. */
async function erase(erasure: Erasure, logger: Logger, closers: Closers): Promise<void> {
  const { config, target, forgotten, listAllApps, context, clock, now } = erasure;
  const { lake: lakeDir, nats, spool } = dataPaths(config.dataDir);
  const publisher = await openErasureStream(erasure, logger, closers);
  const engine = await openCommandEngine(lakeDir, engineLimits(config));
  closers.add('duckdb', () => engine.close());
  const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
  const dependencies = {
    table,
    lakeDir,
    duckdb: engine.duckdb,
    publisher,
    clock,
    crashPoint: noCrashPoint,
    signal: context.stop,
    ...(config.natsUrl === undefined ? { storeDir: path.join(nats, 'store') } : {}),
  };
  const erased = await eraseEvents(dependencies, target, {
    retentionMs: config.retentionMs,
    now,
    assertMeant: (found) => assertOneMeaning(found, target, listAllApps),
  });
  // An export may have begun to read just before.
  const reportsEndBy = new Date(clock.nowMs() + config.exportTimeoutMs + config.linkTtlSeconds * 1000).toISOString();
  const segments = await eraseFromSegments(config, forgotten, clock, context.stop);
  // A query that was killed may have left rows of anybody.
  await clearWorkRooms(queryRooms(spool), 'erase');
  // Whom a body is about that was refused, nobody knows: all of them go, or all of the apps.
  const refusals = await removeRefusals(dataPaths(config.dataDir).refusals, target.apps);
  context.answer({
    ...erased,
    ...(segments === 0 ? {} : { segments }),
    ...(refusals ? { refusals: true } : {}),
    reportsEndBy,
  });
}

/**
 * `tributary erase`: removes the events of users, of devices or of an app (of several named, those that match all) for
 * good. With the service stopped, it runs its own broker and compactor for as long as it takes.
 */
export const eraseCommand = verb({
  name: 'erase',
  summary: 'remove the events of users, devices or an app for good',
  usage: [
    '[--user ID] [--device ID] [--file FILE [--as user|device]] [--kind custom|platform|game] [--app ID | --account N] [--dry-run] [--yes] [--now] [--data DIR]',
  ],
  details: [
    'Of several of --user, --device, --file, --app and --account, the events that match all; each is given once.',
  ],
  options: eraseOptions,
  examples: ['erase --user 4711 --dry-run', 'erase --file ids.txt --as device --account 1'],
  async run(given, context) {
    const { config, paths, clock } = openData(given.data, context);
    // Whoever names an app needs no list.
    const listAllApps = await Promise.all([listApps(paths), listApps(paths, true)]).then(
      (lists) => () => lists.flat(),
      (error: unknown) => () => {
        throw error;
      },
    );
    const target = await parseErasure(given, listAllApps);
    const logger = createLogger(config.logLevel, { role: 'erase' });
    const forgotten = findForgotten(target, given);
    const erasure = { config, target, forgotten, listAllApps, context, clock, now: given.now };
    await ensureLake(paths.lake, { clock, retentionMs: config.retentionMs });
    if (given.dryRun || (!given.yes && context.confirm !== undefined)) {
      const survey = await lookThrough(config, target);
      assertOneMeaning(survey.meanings, target, listAllApps);
      const { meanings: _, ...counts } = survey;
      if (given.dryRun) return context.answer({ dryRun: true, ...counts });
      await confirmErasure(erasure, survey);
    }
    const opened = await buildWithClosers(logger, async (closers) => {
      await erase(erasure, logger, closers);
      return closers;
    });
    await opened.stop();
  },
});
