import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { dataPaths, type Config } from '../config.ts';
import { eraseEvents } from '../compact/erase.ts';
import type { ErasureTarget } from '../compact/erase-target.ts';
import { openCommandEngine } from '../lake/command-engine.ts';
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

const usage = 'tributary erase [--user ID] [--device ID] [--file FILE [--as user|device]] [--app ID] [--now] [--data DIR]';
const options = { user: { type: 'string' }, device: { type: 'string' }, app: { type: 'string' }, file: { type: 'string' }, as: { type: 'string' }, now: { type: 'boolean' } } as const;

interface Words {
  readonly user?: string;
  readonly device?: string;
  readonly app?: string;
  readonly file?: string;
  readonly as?: string;
}

/** Reads a file of ids, one a line; a line's end is no part of an id, anything else is. */
async function readIds(file: string): Promise<string[]> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw new AppError('usage', `cannot read ${file}`, { cause: error });
  });
  return [...new Set(text.split(/\r?\n/).filter((line) => line !== ''))];
}

function refuse(reason: string): never {
  throw new AppError('usage', reason, { hint: `Usage: ${usage}` });
}

async function parseTarget({ user, device, app, file, as = 'user' }: Words): Promise<ErasureTarget> {
  if (as !== 'user' && as !== 'device') refuse(`--as must be user or device, not '${as}'`);
  if (file !== undefined && (as === 'user' ? user : device) !== undefined) refuse(`--${as} and --file name the same kind of id: put them into the file`);
  const ids = file === undefined ? undefined : await readIds(file);
  const users = ids !== undefined && as === 'user' ? ids : user === undefined ? undefined : [user];
  const devices = ids !== undefined && as === 'device' ? ids : device === undefined ? undefined : [device];
  if (users === undefined && devices === undefined && app === undefined) refuse("'erase' needs --user, --device, --file or --app");
  return { ...(users === undefined ? {} : { users }), ...(devices === undefined ? {} : { devices }), ...(app === undefined ? {} : { app: parseId(app, '--app') }) };
}

/** The engine's part of the memory that the setting allows the process: the rest is for the program and what the engine does not count. */
function engineLimits({ duckdbMemoryMb }: Config): { memoryMb: number; threads: number } {
  return { memoryMb: Math.max(128, Math.ceil(duckdbMemoryMb / 2)), threads: duckdbMemoryMb < 1024 ? 1 : 2 };
}

/**
 * `tributary erase`: removes the events of users, of devices or of an app (of several named, those that match all) for good.
 * With the service stopped, it runs its own broker and compactor for as long as it takes.
 */
export const eraseCommand: Command = {
  name: 'erase',
  usage,
  summary: 'remove the events of users, devices or an app for good',
  async run(args, { environment, entry, answer, stop }) {
    const { values } = parseWords(args, [], options, usage);
    const target = await parseTarget(values);
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    const { claim, lake: lakeDir, run, nats } = dataPaths(config.dataDir);
    const { retentionMs } = config;
    const clock = createClock(config.clockOffsetSeconds);
    const logger = createLogger(config.logLevel, { role: 'erase' });
    await ensureLake(lakeDir, { clock, retentionMs });

    const closers = await buildWithClosers(logger, async (opened) => {
      // A compactor that was killed comes back by itself.
      const isKept = readServiceStates(run).some(({ processes }) => processes.some(({ name }) => name === 'compact'));
      if (!isKept && !isCompactorRunning(lakeDir)) {
        const service = await startService({ config, roles: ['compact'], entry, environment, logger });
        opened.add('service', () => service.stop());
      }
      const running = readServiceStates(run).find((state) => state.natsUrl !== undefined);
      const url = config.natsUrl ?? running?.natsUrl;
      if (url === undefined) throw new AppError('broker_away', 'cannot find the broker of the running service', { hint: 'Name it by TRIBUTARY_NATS_URL.' });
      const connection = await openConnection({ url, name: 'tributary erase', logger });
      opened.add('stream', () => connection.close());
      const guard = await openGuard(connection, { streamName: running?.streamName ?? config.streamName, claimFile: claim, logger });
      opened.add('stream guard', () => guard.stop());
      const engine = await openCommandEngine(lakeDir, engineLimits(config));
      opened.add('duckdb', () => engine.close());
      const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
      const storeDir = config.natsUrl === undefined ? { storeDir: path.join(nats, 'store') } : {};
      const dependencies = { table, lakeDir, duckdb: engine.duckdb, publisher: openPublisher(connection, guard), clock, crashPoint: noCrashPoint, signal: stop, ...storeDir };
      const erased = await eraseEvents(dependencies, target, { retentionMs, now: values.now === true });
      // An export may have begun to read just before.
      const reportsEndBy = new Date(clock.nowMs() + config.exportTimeoutMs + config.linkTtlSeconds * 1000).toISOString();
      answer({ ...erased, reportsEndBy });
      return opened;
    });
    await closers.stop();
  },
};
