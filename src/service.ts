import { setTimeout as delay } from 'node:timers/promises';
import { dataPaths } from './config.ts';
import { addLoadRoute } from './ops/load-routes.ts';
import { startOpsServer, type OpsView } from './ops/ops-server.ts';
import { createClock } from './runtime/clock.ts';
import { describeError, isAppError } from './runtime/errors.ts';
import { resolveLakeGroup } from './runtime/files/group-access.ts';
import { httpAddress, resolveHost, settlePorts } from './runtime/http/ports.ts';
import { buildWithClosers, type Stoppable } from './runtime/lifecycle.ts';
import { claimServiceStream, superviseNatsServer } from './service/broker.ts';
import { openServiceFolders, setLakeAccess } from './service/folders.ts';
import { startHosts } from './service/shared-hosts.ts';
import { startRoles } from './service/role-processes.ts';
import { needsStream, type ServiceOptions, type ServiceStart } from './service/service-options.ts';
import { findAbsentAccess, startStateLoop } from './service/state-loop.ts';

/**
 * The service: nats-server, unless the settings name an external one, and a process per role (src/composition).
 *
 * In: settings and the roles to run. Out: processes, their addresses, and a state that commands and health read.
 * Invariant: a process of a data folder runs in one service only; a child that ends is restarted; a failed start leaves
 * nothing running.
 * Crash: children end when their channel closes, nats-server by its watcher; the next start ends the rest.
 */

export interface Service extends Stoppable {
  /** Whether requests can succeed: false for a service of one area without access data. */
  readonly ready: boolean;
  readonly s2s: string | undefined;
  readonly api: string | undefined;
  /** The operator's address if it is served. */
  readonly ops: string | undefined;
  force(): void;
}

/** Chooses the ports of the areas; an address is undefined for an area that does not run here. */
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

/** Serves the operator's address, which reports `starting` until the first `show`. */
async function openOps({ options, closers }: ServiceStart) {
  const { config, entry, withOps = false } = options;
  const { nats, lake, reports, keys } = dataPaths(config.dataDir);
  const parts = {
    disks: { folders: { data: config.dataDir, stream: nats, lake, reports }, reserveBytes: config.diskReserveBytes },
    names: [config.opsHost, ...config.opsNames],
    addRoutes: addLoadRoute({ entry, dataDir: config.dataDir, keysDir: keys }),
  };
  let currentView: OpsView | undefined;
  const ops = withOps
    ? await startOpsServer(await resolveHost(config.opsHost), config.opsPort, () => currentView, parts)
    : undefined;
  closers.add('ops server', () => ops?.stop());
  return {
    url: ops?.url,
    show: (view: OpsView): void => void (currentView = view),
  };
}

/** Starts the steps of the service; `closers` undo the completed ones. */
async function build(start: ServiceStart): Promise<Service> {
  const { options, closers, supervisors } = start;
  const { config, roles } = options;
  const clock = createClock(config.clockOffsetSeconds);
  const startedAt = new Date(clock.nowMs()).toISOString();
  const lakeGroupId = config.lakeGroup === undefined ? undefined : await resolveLakeGroup(config.lakeGroup);
  const folders = await openServiceFolders(start);
  const hosts = await startHosts(start, startedAt);
  const ops = await openOps(start);
  const { s2s, api, environment } = await settleAreas(options);

  const broker = needsStream(roles) ? await superviseNatsServer(start, folders) : undefined;
  folders.watchStore(() => broker?.pid());
  if (options.setsLakeAccess === true && roles.includes('compact')) await setLakeAccess(options, lakeGroupId);
  const worksOnStream = roles.includes('ingest') || roles.includes('compact');
  const streamOwner = broker === undefined || !worksOnStream ? undefined : await claimServiceStream(start, broker);
  if (streamOwner !== undefined) await hosts?.useStream(streamOwner.streamId);

  const settings = {
    TRIBUTARY_DATA_DIR: config.dataDir,
    TRIBUTARY_NATS_URL: broker?.url ?? config.natsUrl,
    TRIBUTARY_NATS_URL_FILE: undefined,
    TRIBUTARY_NATS_SYSTEM_URL: undefined,
    TRIBUTARY_NATS_SYSTEM_URL_FILE: undefined,
    TRIBUTARY_STREAM: config.streamName,
    TRIBUTARY_HOST_ID: hosts?.id,
  };
  const { pins, watch } = folders;
  const running = await startRoles({
    ...start,
    environment: { ...options.environment, ...settings, ...environment },
    pins,
    watch,
  });
  const state = startStateLoop({
    options,
    clock,
    startedAt,
    pins,
    watch,
    broker,
    streamOwner,
    hosts,
    supervisors,
    roles: running,
    s2s,
    api,
    onView: ops.show,
  });
  closers.add('service state', () => state.stop());
  const forcing = new AbortController();

  return {
    ready: findAbsentAccess(options).length === 0,
    s2s: config.publicS2sUrl ?? s2s,
    api: config.publicApiUrl ?? api,
    ops: ops.url,
    async stop() {
      state.drain();
      const { signal } = forcing;
      if ((s2s ?? api) !== undefined) await delay(config.drainMs, undefined, { signal }).catch(() => undefined);
      await closers.stop();
    },
    force() {
      forcing.abort();
      supervisors.forEach((supervisor) => supervisor.force());
    },
  };
}

const portTries = 3;

/**
 * Starts the service and returns when all processes are ready. A failed start leaves nothing running. Retries with
 * other ports if another program takes a free one first.
 */
export async function startService(options: ServiceOptions): Promise<Service> {
  const signal = options.signal ?? new AbortController().signal;
  const { config, logger } = options;
  const isFreeChoice = config.s2sPort === 0 || config.apiPort === 0;
  for (let tries = 1; ; tries += 1) {
    try {
      return await buildWithClosers(logger, (closers) => build({ options, closers, signal, supervisors: [] }));
    } catch (error) {
      if (!isFreeChoice || tries === portTries || !isAppError(error, 'port_in_use')) throw error;
      logger.warn({ error: describeError(error) }, 'free port taken by another program, will retry');
    }
  }
}
