import { dataPaths, type Config } from '../config.ts';
import { ensureLakeId, findFollowedStream } from '../lake/identity.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import { ensureFolder } from '../runtime/files/durable-file.ts';
import { findFolderLocation, type FolderLocation } from '../runtime/files/folder-id.ts';
import { takeOverLock, type Lock } from '../runtime/files/lock.ts';
import { startSupervisor } from '../runtime/processes/supervisor.ts';
import { ensureLocalNatsServer, type LocalNatsServer } from '../nats-setup/ensure-nats-server.ts';
import { startBrokerWatch, type BrokerWatch } from '../stream/broker-watch.ts';
import { watchClusterSync } from '../stream/broker-monitor.ts';
import { awaitLeader, openConnection } from '../stream/connection.ts';
import { killOrphanedServers } from '../stream/store-files.ts';
import { startNatsServer, type NatsAddress, type NatsServer } from '../stream/nats-server.ts';
import { ownStream, type StreamOwner } from '../stream/owner.ts';
import { assertMayPublish } from '../stream/publish-probe.ts';
import { backUpStreamMetadata } from '../stream/stream-metadata-backup.ts';
import { describeWayOut, type FolderChecks } from './folders.ts';
import { logFolderOf, type ServiceOptions, type ServiceStart } from './service-options.ts';

/** The broker of the service: its nats-server or an external one, and the stream. */

/** Wait for the previous owner of the store, whose supervisor may have been killed, ms. */
const storeLockMs = 15_000;
/** Grace period of nats-server before it is killed, ms. Acknowledged messages are on the disk. */
const brokerGraceMs = 5000;
/** Space in the broker's store beyond the limit of the stream, for purged blocks, bytes. */
const storeMarginBytes = 256 * 1024 * 1024;

export interface Broker {
  /** Address with credentials. */
  readonly url: string;
  /** Absent for an external broker. */
  readonly watch?: BrokerWatch;
  /** The process id of the service's nats-server while it runs. */
  pid(): number | undefined;
}

/** Finds nats-server on this machine, or fetches it as `tributary setup` does. */
async function getNatsServer(
  { environment, etc, logger }: ServiceOptions,
  signal: AbortSignal,
): Promise<LocalNatsServer> {
  const onFetch = (text: string): void => logger.info({}, text);
  const server = await ensureLocalNatsServer(environment, { onFetch, signal, ...(etc === undefined ? {} : { etc }) });
  if (server.how === 'fetched') logger.info({ binary: server.binary, version: server.version }, 'nats-server fetched');
  return server;
}

/** Starts nats-server and its supervisor, unless the settings name an external broker. */
export async function superviseNatsServer(
  { options, closers, supervisors, signal }: ServiceStart,
  folders: FolderChecks,
): Promise<Broker> {
  const { config, logger } = options;
  if (config.natsUrl !== undefined) return { url: config.natsUrl, pid: () => undefined };
  const server = await getNatsServer(options, signal);
  const folder = dataPaths(config.dataDir).nats;
  await killOrphanedServers(folder, logger);
  // Both are locked: the broker's folder may be replaced, and another data folder may link to it.
  const locks: Lock[] = [];
  for (const locked of [config.dataDir, folder]) {
    const lock = await takeOverLock(locked, 'the tributary service', {
      waitMs: storeLockMs,
      signal,
      assertFree: folders.assertAlone,
    }).catch((error: unknown) => {
      throw isAppError(error, 'locked')
        ? new AppError('locked', error.message, { cause: error, hint: describeWayOut(config, options.roles) })
        : error;
    });
    locks.push(lock);
    closers.add('broker lock', () => lock.release());
  }

  // A restarted server keeps its address and credentials.
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
  const supervisor = await startSupervisor('nats-server', start, logger, signal);
  supervisors.push(supervisor);
  closers.add('nats-server', () => supervisor.stop(brokerGraceMs));
  const watch = startBrokerWatch(() => supervisor.current(), { folder, reserveBytes: config.diskReserveBytes, logger });
  closers.add('nats-server watch', () => watch.stop());
  if (address === undefined) throw new AppError('start_failed', 'nats-server has no address');
  const { user, password, port } = address;
  return { url: `nats://${user}:${password}@127.0.0.1:${port}`, watch, pid: () => supervisor.current()?.pid };
}

/** Returns where the state of a service is: hosts that share a bucket are one owner of the stream. */
function findStateLocation({ dataDir, storage: { state } }: Config): FolderLocation {
  return state === undefined ? findFolderLocation(dataDir) : { host: 'S3', folder: state, fingerprint: state };
}

/** Claims the stream for this data folder and holds the claim while the service runs. */
export async function claimServiceStream(
  { options, closers, signal }: ServiceStart,
  broker: Broker,
): Promise<StreamOwner> {
  const { config, logger, roles: own } = options;
  const paths = dataPaths(config.dataDir);
  const isExternal = config.natsUrl !== undefined;
  const whenElected = <T>(step: () => Promise<T>): Promise<T> => (isExternal ? awaitLeader(step, signal) : step());
  const connection = await whenElected(() => openConnection({ url: broker.url, name: 'tributary-owner', logger }));
  closers.add('stream owner connection', () => connection.close());
  const sync = isExternal ? await whenElected(() => watchClusterSync(config.natsSystemUrl, logger)) : undefined;
  closers.add('cluster watch', () => sync?.stop());
  const ownerOptions = {
    streamName: config.streamName,
    maxBytes: config.streamMaxBytes,
    lake: { id: await ensureLakeId(paths.lake), findStreamId: () => findFollowedStream(paths.lake) },
    claimFile: paths.claim,
    livenessFolder: paths.run,
    place: findStateLocation(config),
    exclusive: !isExternal,
    replicas: config.streamReplicas,
    logger,
    signal,
  };
  const owner = await whenElected(() => ownStream(connection, ownerOptions));
  closers.add('stream owner', () => owner.stop());
  if (!isExternal) await backUpStreamMetadata(paths.nats, logger);
  if (own.includes('ingest'))
    await assertMayPublish(connection, { streamName: config.streamName, claimFile: paths.claim });
  // The roles are started with the id of this folder.
  await ensureFolder(logFolderOf(config));
  return { ...owner, notices: () => [...owner.notices(), ...(sync?.warnings() ?? [])] };
}
