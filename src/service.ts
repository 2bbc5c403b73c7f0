import path from 'node:path';
import { keepAccessRevision } from './access/access-file.ts';
import { dataPaths } from './config.ts';
import { startOpsServer, type OpsView } from './health/ops-server.ts';
import { createClock } from './runtime/clock.ts';
import { ensureDataFolder } from './runtime/files/data-folder.ts';
import { raiseDataFormat } from './runtime/files/data-format.ts';
import { startFolderWatch } from './runtime/files/folder-watch.ts';
import { resolveLakeGroup } from './runtime/files/group-access.ts';
import { httpAddress, resolveHost, settlePorts } from './runtime/http/ports.ts';
import { buildWithClosers, type Stoppable } from './runtime/lifecycle.ts';
import type { RunningChild } from './runtime/processes/child.ts';
import { findRival, sweepServiceStates } from './runtime/processes/service-state.ts';
import type { Keeper } from './runtime/processes/supervisor.ts';
import { keepNatsServer, keepStream, type Broker } from './service/own-broker.ts';
import { assertAlone, pinFolders, setLakeAccess } from './service/own-folders.ts';
import { startRoles } from './service/role-processes.ts';
import { needStream, runsBroker, type ServiceOptions } from './service/service-options.ts';
import { startStateLoop } from './service/state-loop.ts';
import { createStoreWatch } from './stream/store-files.ts';

/**
 * The service's processes: nats-server, unless an external one is named, and a child for each role. Stages and stores
 * are composed inside those children by app.ts; here is only who runs, on which ports, and in which order they stop.
 *
 * In: settings and the roles to run. Out: processes, their addresses, and a state that commands and health read.
 * Invariant: a process of a data folder runs in one service only; a child that ends is started again; a start that
 * fails leaves nothing running.
 * Crash: the children see their channel close and end, nats-server by its watcher; the next start ends what is left.
 */

/** The running service. */
export interface Service extends Stoppable {
  readonly s2s: string | undefined;
  readonly api: string | undefined;
  /** The operator's address, when one was asked for. */
  readonly ops: string | undefined;
  /** Kills everything at once. */
  force(): void;
}

/** The ports that the areas listen on, and their addresses; undefined for an area that does not run here. */
async function settleAreas({ config, roles }: ServiceOptions) {
  const [isImport, isExport] = [roles.includes('ingest'), roles.includes('export')];
  const wanted = [
    ...(isImport ? [{ port: config.s2sPort, what: 's2s port (TRIBUTARY_S2S_PORT)' }] : []),
    ...(isExport ? [{ port: config.apiPort, what: 'api port (TRIBUTARY_API_PORT)' }] : []),
  ];
  const host = await resolveHost(config.host);
  const ports = await settlePorts(host, wanted);
  const s2sPort = isImport ? ports.shift() : undefined;
  const apiPort = ports.shift();
  return {
    environment: {
      TRIBUTARY_HOST: host,
      ...(s2sPort === undefined ? {} : { TRIBUTARY_S2S_PORT: String(s2sPort) }),
      ...(apiPort === undefined ? {} : { TRIBUTARY_API_PORT: String(apiPort) }),
    },
    s2s: s2sPort === undefined ? undefined : httpAddress(host, s2sPort),
    api: apiPort === undefined ? undefined : httpAddress(host, apiPort),
  };
}

/** Starts the service's processes and returns when all of them are ready; a failed start leaves nothing running. */
export async function startService(options: ServiceOptions): Promise<Service> {
  const { config, logger, roles } = options;
  const paths = dataPaths(config.dataDir);
  const clock = createClock(config.clockOffsetSeconds);
  const signal = options.signal ?? new AbortController().signal;
  const startedAt = new Date(clock.nowMs()).toISOString();

  return buildWithClosers(logger, async (closers) => {
    const lakeGroupId = config.lakeGroup === undefined ? undefined : await resolveLakeGroup(config.lakeGroup);
    await ensureDataFolder(config.dataDir, [paths.run]);
    const processes = [...(runsBroker(config, roles) ? ['nats-server'] : []), ...roles];
    const assertNoRival = (): void => assertAlone(config, roles, processes);
    assertNoRival();
    await raiseDataFormat(config.dataDir);
    sweepServiceStates(paths.run);
    await keepAccessRevision(paths);
    const pins = pinFolders(config, roles);
    closers.add('folders', () => pins.close());
    let opsView: OpsView | undefined;
    const ops =
      options.withOps === true
        ? await startOpsServer(await resolveHost(config.opsHost), config.opsPort, () => opsView)
        : undefined;
    closers.add('ops server', () => ops?.stop());
    const { s2s, api, environment } = await settleAreas(options);

    const keepers: Keeper<RunningChild>[] = [];
    const storeWatch = createStoreWatch(path.join(paths.nats, 'store'));
    let broker: Broker | undefined;
    const watch = startFolderWatch({
      dataDir: config.dataDir,
      pins,
      findRival: () => findRival(paths.run, processes),
      isStoreReplaced: () => storeWatch.isReplaced(broker?.pid()),
      // Not asked to stop: on its way out a process writes by path, into what belongs to somebody else now. A kill
      // loses nothing.
      onChange: () => keepers.forEach((keeper) => keeper.renew()),
      logger,
    });
    closers.add('folder watch', () => watch.stop());
    broker = needStream(roles)
      ? await keepNatsServer(options, closers, keepers, signal, {
          assertAlone: assertNoRival,
          assertOwn: watch.assertWhole,
        })
      : undefined;
    if (options.setsLakeAccess === true && roles.includes('compact')) await setLakeAccess(options, lakeGroupId);
    const worksOnStream = roles.includes('ingest') || roles.includes('compact');
    const streamOwner =
      broker === undefined || !worksOnStream ? undefined : await keepStream(options, broker, closers, signal);

    const settings = {
      TRIBUTARY_DATA_DIR: config.dataDir,
      TRIBUTARY_NATS_URL: broker?.url,
      TRIBUTARY_STREAM: config.streamName,
    };
    const running = await startRoles({
      options,
      environment: { ...options.environment, ...settings, ...environment },
      pins,
      watch,
      keepers,
      closers,
      signal,
    });
    const onView = (view: OpsView): void => void (opsView = view);
    closers.add(
      'service state',
      startStateLoop({
        options,
        clock,
        startedAt,
        pins,
        watch,
        broker,
        streamOwner,
        keepers,
        roles: running,
        s2s,
        api,
        onView,
      }),
    );

    return {
      s2s: config.publicS2sUrl ?? s2s,
      api: config.publicApiUrl ?? api,
      ops: ops?.url,
      stop: () => closers.stop(),
      force: () => keepers.forEach((keeper) => keeper.force()),
    };
  });
}
