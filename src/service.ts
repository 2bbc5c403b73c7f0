import path from 'node:path';
import process from 'node:process';
import { keepAccessRevision } from './access/access-file.ts';
import type { Config } from './config.ts';
import { dataPaths } from './config.ts';
import { findNotices, findProblems, withSince } from './health/health.ts';
import { startOpsServer, type OpsView } from './health/ops-server.ts';
import { createProblemLog } from './health/problem-log.ts';
import { closeToGroup, openToGroup, resolveLakeGroup } from './runtime/files/group-access.ts';
import { ensureLakeId, findFollowedStream } from './lake/identity.ts';
import { forkRole, type RoleChild, type RunningChild } from './runtime/processes/child.ts';
import { createClock } from './runtime/clock.ts';
import { raiseDataFormat } from './runtime/files/data-format.ts';
import { ensureDataFolder } from './runtime/files/data-folder.ts';
import { createDescriptorWatch } from './runtime/files/descriptor-watch.ts';
import { ensureFolder } from './runtime/files/durable-file.ts';
import { AppError, describeError, isAppError } from './runtime/errors.ts';
import { startKeeper, type Keeper } from './runtime/processes/supervisor.ts';
import { findFolderPlace } from './runtime/files/folder-place.ts';
import { buildWithClosers, type Closers, type Stoppable } from './runtime/lifecycle.ts';
import { openFolderPins, type FolderPins } from './runtime/files/folder-pins.ts';
import { startFolderWatch } from './runtime/files/folder-watch.ts';
import { takeOverLock, type Lock } from './runtime/files/lock.ts';
import type { Logger } from './runtime/logger.ts';
import { httpAddress, resolveHost, settlePorts } from './runtime/http/ports.ts';
import { findProcessStart } from './runtime/processes/process-identity.ts';
import { createSilenceWatch } from './runtime/processes/silence-watch.ts';
import { findRival, removeServiceState, sweepServiceStates, writeServiceState, type ServiceState } from './runtime/processes/service-state.ts';
import { startTogether } from './runtime/async/start-together.ts';
import { ensureLocalNatsServer, type LocalNatsServer } from './setup/ensure-nats-server.ts';
import { startBrokerWatch, type BrokerWatch } from './stream/broker-watch.ts';
import { openConnection } from './stream/connection.ts';
import { endLeftOverServers } from './stream/left-over-servers.ts';
import { startNatsServer, type NatsAddress, type NatsServer } from './stream/nats-server.ts';
import { createStoreWatch } from './stream/store-files.ts';
import { ownStream, type StreamOwner } from './stream/owner.ts';
import { assertMayPublish } from './stream/publish-probe.ts';

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
  /** Serve the operator's address: health with its reasons, and metrics. */
  readonly withOps?: boolean;
  /** The settings say who may read the lake. Left out by a command that runs a compactor for a while: it leaves that as it is. */
  readonly setsLakeAccess?: boolean;
  /** Aborted when the service is told to stop while it starts: the start then ends with `stopping`. */
  readonly signal?: AbortSignal;
  /** The machine's configuration folder, whose package sources a missing nats-server is fetched from; only tests name another than `/etc`. */
  readonly etc?: string;
}

/** The running service. */
export interface Service extends Stoppable {
  readonly s2s: string | undefined;
  readonly api: string | undefined;
  /** The operator's address, when one was asked for. */
  readonly ops: string | undefined;
  /** Kills everything at once. */
  force(): void;
}

const readyMs = 60_000;
/** Long enough for the slowest flush or answer; then the process is killed, which loses nothing. */
const graceMs = 30_000;
/** How long the previous owner of the broker's store may take to go: its supervisor may just have been killed. */
const storeLockMs = 15_000;
/** What nats-server has acknowledged is on the disk: one that does not end soon is killed. */
const brokerGraceMs = 5000;
const stateEveryMs = 1000;
/** Room in the broker's store beyond the stream's own limit, bytes: purged blocks linger for a moment. */
const storeMarginBytes = 256 * 1024 * 1024;

/** The broker as the roles see it, and what watches it when it is our own. */
interface Broker {
  /** Address with credentials. */
  readonly url: string;
  readonly watch?: BrokerWatch;
  /** The process id of our own, while it runs. */
  pid(): number | undefined;
}

/** What is asked of the folders before something runs on them; each throws. */
interface FolderChecks {
  /** `locked`: another service runs on them. */
  readonly assertAlone: () => void;
  /** `folder_lost`: they are not the service's own any more. */
  readonly assertOwn: () => void;
}

/** Says whether these roles work on the stream: to export, no broker is needed. */
function needStream(own: readonly Role[]): boolean {
  // None: a command wants the folder's own broker for a while.
  return own.length === 0 || own.some((role) => role !== 'export');
}

/** Says whether a service of these roles runs a nats-server of its own, in its data folder. */
function runsBroker(config: Config, own: readonly Role[]): boolean {
  return config.natsUrl === undefined && needStream(own);
}

/** The nats-server of this machine; one is fetched where there is none, as with `tributary setup`. */
async function getNatsServer({ environment, etc, logger }: ServiceOptions, signal: AbortSignal): Promise<LocalNatsServer> {
  const onFetch = (text: string): void => logger.info({}, text);
  const server = await ensureLocalNatsServer(environment, { onFetch, signal, ...(etc === undefined ? {} : { etc }) });
  if (server.how === 'fetched') logger.info({ binary: server.binary, version: server.version }, 'nats-server fetched');
  return server;
}

/** Runs nats-server, and heals it, unless an external one is named. */
async function keepNatsServer(options: ServiceOptions, closers: Closers, keepers: Keeper<RunningChild>[], signal: AbortSignal, folders: FolderChecks): Promise<Broker> {
  const { config, logger } = options;
  if (config.natsUrl !== undefined) return { url: config.natsUrl, pid: () => undefined };
  const server = await getNatsServer(options, signal);
  const folder = dataPaths(config.dataDir).nats;
  await endLeftOverServers(folder, logger);
  // Both: the data folder, so that a broker's folder made anew is no way in, and the broker's own, which a link may share.
  const locks: Lock[] = [];
  for (const locked of [config.dataDir, folder]) {
    const lock = await takeOverLock(locked, 'the tributary service', { waitMs: storeLockMs, signal, assertFree: folders.assertAlone }).catch((error: unknown) => {
      throw isAppError(error, 'locked') ? new AppError('locked', error.message, { cause: error, hint: describeWayOut(config, options.roles) }) : error;
    });
    locks.push(lock);
    closers.add('broker lock', () => lock.release());
  }

  // Clients find a restarted server where the first one was.
  let address: NatsAddress | undefined;
  const start = async (unwanted: AbortSignal): Promise<NatsServer> => {
    folders.assertOwn();
    const running = await startNatsServer({
      binary: server.binary,
      folder,
      lockFds: locks.map(({ fd }) => fd),
      maxStoreBytes: config.streamMaxBytes + storeMarginBytes,
      logger,
      signal: unwanted,
      ...(address === undefined ? {} : { address }),
    });
    address = running.address;
    return running;
  };
  const keeper = await startKeeper('nats-server', start, logger, signal);
  keepers.push(keeper);
  closers.add('nats-server', () => keeper.stop(brokerGraceMs));
  const watch = startBrokerWatch(() => keeper.current(), { folder, reserveBytes: config.diskReserveBytes, logger });
  closers.add('nats-server watch', () => watch.stop());
  if (address === undefined) throw new AppError('start_failed', 'nats-server has no address');
  const { user, password, port } = address;
  return { url: `nats://${user}:${password}@127.0.0.1:${port}`, watch, pid: () => keeper.current()?.pid };
}

/** Claims the stream for this data folder, and keeps it claimed and safe while the service runs. */
async function keepStream({ config, logger, roles: own }: ServiceOptions, broker: Broker, closers: Closers, signal: AbortSignal): Promise<StreamOwner> {
  const paths = dataPaths(config.dataDir);
  const connection = await openConnection({ url: broker.url, name: 'tributary-owner', logger });
  closers.add('stream owner connection', () => connection.close());
  const owner = await ownStream(connection, {
    streamName: config.streamName,
    maxBytes: config.streamMaxBytes,
    lake: { id: await ensureLakeId(paths.lake), findStreamId: () => findFollowedStream(paths.lake) },
    claimFile: paths.claim,
    questionFolder: paths.run,
    place: findFolderPlace(config.dataDir),
    exclusive: config.natsUrl === undefined,
    logger,
    signal,
  });
  closers.add('stream owner', () => owner.stop());
  if (own.includes('ingest')) await assertMayPublish(connection, { streamName: config.streamName, claimFile: paths.claim });
  // There from the first moment on, so that each role is told which they are.
  await ensureFolder(logFolderOf(config));
  return owner;
}

/** The lake's folder that lies deepest: where the log is. */
function logFolderOf({ dataDir }: Config): string {
  return path.join(dataPaths(dataDir).lake, 'events', '_delta_log');
}

/** Opens the lake to the group of the settings, or takes it back from one. */
async function setLakeAccess({ config, logger }: ServiceOptions, groupId: number | undefined): Promise<void> {
  const { lake } = dataPaths(config.dataDir);
  if (groupId !== undefined) {
    await openToGroup(config.dataDir, lake, groupId);
    logger.info({ group: config.lakeGroup, groupId }, 'the lake is readable for a group');
  } else if (await closeToGroup(config.dataDir, lake)) {
    logger.warn({}, 'the lake is not readable for a group any more: TRIBUTARY_LAKE_GROUP is not set');
  }
}

/** Refuses a data folder on which another service runs one of these processes, however its lock was lost. */
function assertAlone(config: Config, own: readonly Role[], processes: readonly string[]): void {
  const rival = findRival(dataPaths(config.dataDir).run, processes);
  if (rival !== undefined) throw new AppError('locked', `${config.dataDir} is in use by ${rival}`, { hint: describeWayOut(config, own) });
}

/** What to do where another service runs on the data folder: some roles may run beside it, others only with a broker of their own. */
function describeWayOut(config: Config, own: readonly Role[]): string {
  if (!runsBroker(config, own) || own.length === roles.length) return 'Stop that one first, or use another data folder.';
  return 'Stop that one first. To run ingest and compact in services of their own, name to each the same NATS server by TRIBUTARY_NATS_URL; a service of --role export alone runs beside any other without one.';
}

/** Holds the folders that the service works in; the report files' are the export role's own matter. */
function pinFolders(config: Config, own: readonly Role[]): FolderPins {
  const { nats, lake } = dataPaths(config.dataDir);
  const store = runsBroker(config, own) ? [nats, path.join(nats, 'store'), path.join(nats, 'store', 'jetstream')] : [];
  return openFolderPins([config.dataDir, ...store, lake, path.join(lake, 'events'), logFolderOf(config)]);
}

/** What a role's process last told, and when, by the monotonic clock. */
interface Report {
  readonly metrics: unknown[];
  readonly facts: Readonly<Record<string, unknown>>;
  readonly atMs: number;
}

/** Starts the service's processes and returns when all of them are ready; a failed start leaves nothing running. */
export async function startService(options: ServiceOptions): Promise<Service> {
  const { config, logger } = options;
  const paths = dataPaths(config.dataDir);
  const clock = createClock(config.clockOffsetSeconds);
  const signal = options.signal ?? new AbortController().signal;
  const startedAt = new Date(clock.nowMs()).toISOString();

  return buildWithClosers(logger, async (closers) => {
    const lakeGroupId = config.lakeGroup === undefined ? undefined : await resolveLakeGroup(config.lakeGroup);
    await ensureDataFolder(config.dataDir, [paths.run]);
    const ownsBroker = runsBroker(config, options.roles);
    const processes = [...(ownsBroker ? ['nats-server'] : []), ...options.roles];
    const assertNoRival = (): void => assertAlone(config, options.roles, processes);
    assertNoRival();
    await raiseDataFormat(config.dataDir);
    sweepServiceStates(paths.run);
    await keepAccessRevision(paths);
    const pins = pinFolders(config, options.roles);
    closers.add('folders', () => pins.close());
    let opsView: OpsView | undefined;
    const ops = options.withOps === true ? await startOpsServer(await resolveHost(config.opsHost), config.opsPort, () => opsView) : undefined;
    closers.add('ops server', () => ops?.stop());
    const has = (role: Role): boolean => options.roles.includes(role);
    const wanted = [...(has('ingest') ? [{ port: config.s2sPort, what: 's2s port (TRIBUTARY_S2S_PORT)' }] : []), ...(has('export') ? [{ port: config.apiPort, what: 'api port (TRIBUTARY_API_PORT)' }] : [])];
    const host = await resolveHost(config.host);
    const ports = await settlePorts(host, wanted);
    const s2sPort = has('ingest') ? ports.shift() : undefined;
    const apiPort = ports.shift();
    const s2s = s2sPort === undefined ? undefined : httpAddress(host, s2sPort);
    const api = apiPort === undefined ? undefined : httpAddress(host, apiPort);

    const keepers: Keeper<RunningChild>[] = [];
    const storeWatch = createStoreWatch(path.join(paths.nats, 'store'));
    let broker: Broker | undefined;
    const watch = startFolderWatch({
      dataDir: config.dataDir,
      pins,
      findRival: () => findRival(paths.run, processes),
      isStoreReplaced: () => storeWatch.isReplaced(broker?.pid()),
      // Not asked to stop: on its way out a process writes by path, into what belongs to somebody else now. A kill loses nothing.
      onChange: () => keepers.forEach((keeper) => keeper.renew()),
      logger,
    });
    closers.add('folder watch', () => watch.stop());
    const assertFolders = (): void => {
      const loss = watch.findLoss();
      if (loss !== undefined) throw new AppError('folder_lost', loss.what, { hint: loss.todo });
    };
    broker = needStream(options.roles) ? await keepNatsServer(options, closers, keepers, signal, { assertAlone: assertNoRival, assertOwn: assertFolders }) : undefined;
    const natsUrl = broker?.url;
    if (options.setsLakeAccess === true && has('compact')) await setLakeAccess(options, lakeGroupId);
    const streamOwner = broker === undefined || !(has('ingest') || has('compact')) ? undefined : await keepStream(options, broker, closers, signal);
    const brokerWatch = broker?.watch;
    const reports = new Map<string, Report>();
    const roleKeepers: Keeper<RoleChild>[] = [];
    const silence = createSilenceWatch(logger);

    const environment = {
      ...options.environment,
      TRIBUTARY_DATA_DIR: config.dataDir,
      TRIBUTARY_NATS_URL: natsUrl,
      TRIBUTARY_STREAM: config.streamName,
      TRIBUTARY_HOST: host,
      ...(s2sPort === undefined ? {} : { TRIBUTARY_S2S_PORT: String(s2sPort) }),
      ...(apiPort === undefined ? {} : { TRIBUTARY_API_PORT: String(apiPort) }),
    };
    const kept = new Map<string, Keeper<RoleChild>>();
    const keepRole = async (name: string, role: Role, starting: AbortSignal): Promise<void> => {
      const onReport = (report: Omit<Report, 'atMs'>): void => void reports.set(name, { ...report, atMs: performance.now() });
      const start = async (unwanted: AbortSignal): Promise<RoleChild> => {
        pins.pin();
        const loss = watch.findLoss();
        // Clients and operators are answered all the same; nothing reads or writes the folders.
        if (role === 'compact') assertFolders();
        const own = { TRIBUTARY_FOLDERS: JSON.stringify(pins.ids()), TRIBUTARY_CLOSED: loss?.what };
        const child = await forkRole({ entry: options.entry, role, environment: { ...environment, ...own }, shared: role === 'ingest', readyMs, signal: unwanted, onReport });
        // It was no child yet when that was told: one that is closed would stay so, and one that is not would go on.
        if (watch.findLoss()?.what !== loss?.what) {
          child.kill();
          await child.exited;
          throw new AppError('folder_lost', 'the folders of the service were lost, or came back, while the process started');
        }
        onReport({ metrics: [], facts: {} });
        return child;
      };
      const keeper = await startKeeper(name, start, logger, starting);
      kept.set(name, keeper);
      keepers.push(keeper);
      roleKeepers.push(keeper);
    };

    // Started side by side: what the others have to tidy does not keep import waiting. Stopped one after the other, in the reverse
    // of this order: first no new events, then the last flush, then nobody reads.
    const workers = (role: Role): readonly string[] => (role === 'ingest' ? Array.from({ length: config.ingestWorkers }, (_, index) => `ingest-${index + 1}`) : [role]);
    const wantedRoles = (['export', 'compact', 'ingest'] as const).filter(has).flatMap((role) => workers(role).map((name) => ({ name, role })));
    for (const { name } of wantedRoles) closers.add(name, () => kept.get(name)?.stop(graceMs));
    await startTogether(wantedRoles.map(({ name, role }) => (unwanted) => keepRole(name, role, unwanted)), signal);
    const served = roleKeepers.filter((keeper) => keeper.state().name !== 'compact');
    // However they came up: told in this order.
    const order = wantedRoles.map(({ name }) => name);
    keepers.sort((one, other) => order.indexOf(one.state().name) - order.indexOf(other.state().name));
    if (signal.aborted) throw new AppError('stopping', 'the service was stopped while it started');

    const problemLog = createProblemLog(logger, () => clock.nowMs());
    const descriptors = createDescriptorWatch('the supervisor');
    const publishState = (): void => {
      const reporting = roleKeepers.filter((keeper) => keeper.state().state === 'running');
      silence.look(reporting.map((keeper) => ({ name: keeper.state().name, reportedAtMs: reports.get(keeper.state().name)?.atMs ?? 0, renew: () => keeper.renew() })));
      const loss = watch.findLoss();
      const state: ServiceState = {
        pid: process.pid,
        processStart: findProcessStart(process.pid),
        folder: pins.ids()[config.dataDir] ?? '',
        startedAt,
        writtenAt: new Date(clock.nowMs()).toISOString(),
        s2s,
        api,
        natsUrl,
        streamName: config.streamName,
        processes: keepers.map((keeper) => keeper.state()),
        facts: {
          ...Object.fromEntries([...reports].map(([name, report]) => [name, report.facts])),
          supervisor: { problems: [...descriptors.problems(), ...(streamOwner?.problems() ?? []), ...(loss === undefined ? [] : [loss])], notices: streamOwner?.notices() ?? [] },
          ...(brokerWatch === undefined ? {} : { 'nats-server': { heals: brokerWatch.heals(), problems: brokerWatch.problems() } }),
        },
        silentMs: Object.fromEntries([...reports].map(([name, report]) => [name, Math.round(performance.now() - report.atMs)])),
      };
      const found = findProblems(state, clock.nowMs());
      const since = problemLog.update(found, findNotices(state));
      const problems = withSince(found, since);
      opsView = { problems, metrics: [...reports.values()].map((report) => report.metrics) };
      for (const keeper of served) keeper.current()?.send({ type: 'service', state: { ready: problems.length === 0 } });
      if (pins.findLost().length > 0) return;
      try {
        writeServiceState(paths.run, { ...state, since });
      } catch (error) {
        // A full disk must not take the supervisor down: the state is a convenience for the commands.
        logger.warn({ error: describeError(error) }, 'service state cannot be written');
      }
    };
    publishState();
    const timer = setInterval(publishState, stateEveryMs);
    closers.add('service state', () => {
      clearInterval(timer);
      if (pins.findLost().length === 0) removeServiceState(paths.run, process.pid);
    });

    return { s2s: config.publicS2sUrl ?? s2s, api: config.publicApiUrl ?? api, ops: ops?.url, stop: () => closers.stop(), force: () => keepers.forEach((keeper) => keeper.force()) };
  });
}
