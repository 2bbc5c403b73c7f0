import path from 'node:path';
import process from 'node:process';
import type { Config } from './config.ts';
import { dataPaths } from './config.ts';
import { forkRole, type RoleChild, type RunningChild } from './runtime/child.ts';
import { createClock } from './runtime/clock.ts';
import { ensureFolder } from './runtime/durable-file.ts';
import { AppError } from './runtime/errors.ts';
import { startKeeper, type Keeper } from './runtime/keeper.ts';
import { buildWithClosers, type Closers, type Stoppable } from './runtime/lifecycle.ts';
import { takeOverLock } from './runtime/lock.ts';
import type { Logger } from './runtime/logger.ts';
import { httpAddress, settlePort } from './runtime/ports.ts';
import { removeServiceState, writeServiceState, type ServiceState } from './runtime/service-state.ts';
import { cacheFolder, findNatsServer, minimumNatsVersion } from './setup/find-nats-server.ts';
import { startNatsServer, type NatsAddress } from './stream/nats-server.ts';

/**
 * The service's processes: nats-server, unless an external one is named, and a child for each role. Stages and stores
 * are composed inside those children by app.ts; here is only who runs, on which ports, and in which order they stop.
 */

/** The roles a child process can have. */
export const roles = ['ingest', 'compact', 'export'] as const;
export type Role = (typeof roles)[number];

export interface ServiceOptions {
  readonly config: Config;
  readonly roles: readonly Role[];
  /** The program's entry file, which the children run. */
  readonly entry: string;
  readonly environment: NodeJS.ProcessEnv;
  readonly logger: Logger;
}

/** The running service. */
export interface Service extends Stoppable {
  readonly s2s: string | undefined;
  readonly api: string | undefined;
  /** Kills everything at once. */
  force(): void;
}

const readyMs = 60_000;
/** Long enough for the slowest flush or answer; then the process is killed, which loses nothing. */
const graceMs = 30_000;
/** How long the previous owner of the broker's store may take to go: its supervisor may just have been killed. */
const storeLockMs = 15_000;
const stateEveryMs = 1000;
/** Room in the broker's store beyond the stream's own limit, bytes: purged blocks linger for a moment. */
const storeMarginBytes = 256 * 1024 * 1024;

/** Runs nats-server unless an external one is named; returns the address, with credentials, that the roles connect to. */
async function keepNatsServer(options: ServiceOptions, closers: Closers, keepers: Keeper<RunningChild>[]): Promise<string> {
  const { config, environment, logger } = options;
  if (config.natsUrl !== undefined) return config.natsUrl;
  const server = await findNatsServer({ path: environment['PATH'], cacheFolder: cacheFolder(environment) });
  if (server === undefined) {
    throw new AppError('broker_missing', `there is no nats-server of version ${minimumNatsVersion} or newer`, { hint: "Run 'make build', or 'tributary setup'." });
  }
  const folder = dataPaths(config.dataDir).nats;
  const lock = await takeOverLock(path.join(folder, 'lock'), 'the tributary service', storeLockMs);
  closers.add('broker lock', () => lock.release());

  // Clients find a restarted server where the first one was.
  let address: NatsAddress | undefined;
  const start = async (): Promise<RunningChild> => {
    const running = await startNatsServer({
      binary: server.binary,
      folder,
      lockFd: lock.fd,
      maxStoreBytes: config.streamMaxBytes + storeMarginBytes,
      logger,
      ...(address === undefined ? {} : { address }),
    });
    address = running.address;
    return running;
  };
  const keeper = await startKeeper('nats-server', start, logger);
  keepers.push(keeper);
  closers.add('nats-server', () => keeper.stop(graceMs));
  if (address === undefined) throw new AppError('start_failed', 'nats-server has no address');
  const { user, password, port } = address;
  return `nats://${user}:${password}@127.0.0.1:${port}`;
}

/** Starts the service's processes and returns when all of them are ready; a failed start leaves nothing running. */
export async function startService(options: ServiceOptions): Promise<Service> {
  const { config, logger } = options;
  const paths = dataPaths(config.dataDir);
  const clock = createClock(config.clockOffsetSeconds);
  const startedAt = new Date(clock.nowMs()).toISOString();

  return buildWithClosers(logger, async (closers) => {
    await ensureFolder(config.dataDir);
    const has = (role: Role): boolean => options.roles.includes(role);
    const s2sPort = has('ingest') ? await settlePort(config.host, config.s2sPort, 's2s port') : undefined;
    const apiPort = has('export') ? await settlePort(config.host, config.apiPort, 'api port') : undefined;
    const s2s = s2sPort === undefined ? undefined : httpAddress(config.host, s2sPort);
    const api = apiPort === undefined ? undefined : httpAddress(config.host, apiPort);

    const keepers: Keeper<RunningChild>[] = [];
    const natsUrl = await keepNatsServer(options, closers, keepers);
    const reports = new Map<string, { metrics: unknown[]; facts: Readonly<Record<string, unknown>> }>();

    const environment = {
      ...options.environment,
      TRIBUTARY_DATA_DIR: config.dataDir,
      TRIBUTARY_NATS_URL: natsUrl,
      TRIBUTARY_HOST: config.host,
      ...(s2sPort === undefined ? {} : { TRIBUTARY_S2S_PORT: String(s2sPort) }),
      ...(apiPort === undefined ? {} : { TRIBUTARY_API_PORT: String(apiPort) }),
    };
    const keepRole = async (name: string, role: Role): Promise<Keeper<RoleChild>> => {
      const start = (): Promise<RoleChild> =>
        forkRole({
          entry: options.entry,
          role,
          environment,
          shared: role === 'ingest',
          readyMs,
          onReport: (report) => void reports.set(name, report),
        });
      const keeper = await startKeeper(name, start, logger);
      keepers.push(keeper);
      closers.add(name, () => keeper.stop(graceMs));
      return keeper;
    };

    // Started in this order, stopped in the reverse: first no new events, then the last flush, then nobody reads.
    const exporter = has('export') ? await keepRole('export', 'export') : undefined;
    if (has('compact')) await keepRole('compact', 'compact');
    if (has('ingest')) {
      const workers = Array.from({ length: config.ingestWorkers }, (_, index) => `ingest-${index + 1}`);
      await Promise.all(workers.map((name) => keepRole(name, 'ingest')));
    }

    const publishState = (): void => {
      const state: ServiceState = {
        pid: process.pid,
        startedAt,
        writtenAt: new Date(clock.nowMs()).toISOString(),
        s2s,
        api,
        natsUrl,
        processes: keepers.map((keeper) => keeper.state()),
        facts: Object.fromEntries([...reports].map(([name, report]) => [name, report.facts])),
      };
      writeServiceState(paths.run, state);
      exporter?.current()?.send({ type: 'service', state: { ...state, natsUrl: undefined, metrics: [...reports.values()].map((report) => report.metrics) } });
    };
    publishState();
    const timer = setInterval(() => {
      try {
        publishState();
      } catch (error) {
        // A full disk must not take the supervisor down: the state is a convenience for the commands.
        logger.warn({ error: String(error) }, 'service state cannot be written');
      }
    }, stateEveryMs);
    closers.add('service state', () => {
      clearInterval(timer);
      removeServiceState(paths.run, process.pid);
    });

    return { s2s: config.publicS2sUrl ?? s2s, api: config.publicApiUrl ?? api, stop: () => closers.stop(), force: () => keepers.forEach((keeper) => keeper.force()) };
  });
}
