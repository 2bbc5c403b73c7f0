import path from 'node:path';
import { keepAccessRevision } from '../access/access-file.ts';
import { dataPaths, type Config } from '../config.ts';
import { datasets } from '../datasets/dataset.ts';
import { AppError } from '../runtime/errors.ts';
import { ensureDataFolder, raiseDataFormat } from '../runtime/files/data-format.ts';
import { openFolderPins, type FolderPins, startFolderWatch, type FolderWatch } from '../runtime/files/folder-watch.ts';
import { closeToGroup, openToGroup } from '../runtime/files/group-access.ts';
import { findRival, sweepServiceStates } from '../runtime/processes/service-state.ts';
import { createStoreWatch } from '../stream/store-files.ts';
import {
  logFolderOf,
  roles,
  runsBroker,
  type Role,
  type ServiceOptions,
  type ServiceStart,
} from './service-options.ts';

/** The data folder of a service: that it is the service's alone, which folders are held, and who may read the lake. */

/** What is asked of the folders before something runs on them; each throws. */
export interface FolderChecks {
  /** `locked`: another service runs on them. */
  readonly assertAlone: () => void;
  /** `folder_lost`: they are not the service's own any more. */
  readonly assertOwn: () => void;
}

/** The folders of a service: its own as far as the checks say, held, and watched. */
interface ServiceFolders extends FolderChecks {
  readonly pins: FolderPins;
  readonly watch: FolderWatch;
  /** Watches the store of the broker too, which runs under this process id; undefined while it does not run. */
  watchStore(brokerPid: () => number | undefined): void;
}

/** Opens the lake to the group of the settings, or takes it back from one. */
export async function setLakeAccess({ config, logger }: ServiceOptions, groupId: number | undefined): Promise<void> {
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
  if (rival !== undefined)
    throw new AppError('locked', `${config.dataDir} is in use by ${rival}`, { hint: describeWayOut(config, own) });
}

/**
 * What to do where another service runs on the data folder: some roles may run beside it, others only with a broker of
 * their own.
 */
export function describeWayOut(config: Config, own: readonly Role[]): string {
  if (!runsBroker(config, own) || own.length === roles.length)
    return 'Stop that one first, or use another data folder.';
  return 'Stop that one first. To run ingest and compact in services of their own, name to each the same NATS server by TRIBUTARY_NATS_URL; a service of --role export alone runs beside any other without one.';
}

/** Holds the folders that the service works in; the report files' are the export role's own matter. */
function pinFolders(config: Config, own: readonly Role[]): FolderPins {
  const { nats, lake } = dataPaths(config.dataDir);
  const store = runsBroker(config, own) ? [nats, path.join(nats, 'store'), path.join(nats, 'store', 'jetstream')] : [];
  // A table that comes later is held once it is there.
  const tables = [...datasets.keys()].map((table) => path.join(lake, table));
  return openFolderPins([config.dataDir, ...store, lake, ...tables, logFolderOf(config)]);
}

/**
 * Makes the data folder ready for the roles of a service, holds its folders and watches them. Errors: `locked` (another
 * service runs on it), `data_format`, `disk`.
 */
export async function openServiceFolders({ options, closers, supervisors }: ServiceStart): Promise<ServiceFolders> {
  const { config, logger, roles: own } = options;
  const paths = dataPaths(config.dataDir);
  await ensureDataFolder(config.dataDir, [paths.run]);
  const processes = [...(runsBroker(config, own) ? ['nats-server'] : []), ...own];
  const checkAlone = (): void => assertAlone(config, own, processes);
  checkAlone();
  await raiseDataFormat(config.dataDir);
  sweepServiceStates(paths.run);
  await keepAccessRevision(paths);
  const pins = pinFolders(config, own);
  closers.add('folders', () => pins.close());
  const storeWatch = createStoreWatch(path.join(paths.nats, 'store'));
  let findBrokerPid: (() => number | undefined) | undefined;
  const watch = startFolderWatch({
    dataDir: config.dataDir,
    pins,
    findRival: () => findRival(paths.run, processes),
    isStoreReplaced: () => storeWatch.isReplaced(findBrokerPid?.()),
    // Not asked to stop: on its way out a process writes by path, into what belongs to somebody else now. A kill
    // loses nothing.
    onChange: () => supervisors.forEach((supervisor) => supervisor.renew()),
    logger,
  });
  closers.add('folder watch', () => watch.stop());
  return {
    pins,
    watch,
    assertAlone: checkAlone,
    assertOwn: watch.assertWhole,
    watchStore(brokerPid) {
      findBrokerPid = brokerPid;
    },
  };
}
