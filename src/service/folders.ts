import path from 'node:path';
import { keepAccessRevision } from '../access/access-file.ts';
import { dataPaths, type Config } from '../config.ts';
import { datasets } from '../datasets/dataset.ts';
import { AppError } from '../runtime/errors.ts';
import { ensureDataFolder, raiseDataFormat } from '../runtime/files/data-format.ts';
import { openFolderHandles, type FolderHandles, startFolderWatch } from '../runtime/files/folder-watch.ts';
import { closeToGroup, openToGroup } from '../runtime/files/group-access.ts';
import { findCompetingService, sweepServiceStates } from '../runtime/processes/service-state.ts';
import { raiseStoredFormat } from '../runtime/store/stored-format.ts';
import { createStoreWatch } from '../stream/store-files.ts';
import {
  logFolderOf,
  roles,
  runsBroker,
  type Role,
  type ServiceOptions,
  type ServiceStart,
} from './service-options.ts';

/** The data folder of a service: exclusive ownership, pinned folders, and group access to the lake. */

/** Checks of the folders before a process starts; each throws. */
export interface FolderChecks {
  /** `locked`: another service runs on them. */
  readonly assertAlone: () => void;
  /** `folder_lost`: a folder was replaced or removed. */
  readonly assertOwn: () => void;
}

/** Grants the group of the settings access to the lake, or revokes the access of an earlier group. */
export async function setLakeAccess({ config, logger }: ServiceOptions, groupId: number | undefined): Promise<void> {
  const { lake } = dataPaths(config.dataDir);
  if (groupId !== undefined) {
    await openToGroup(config.dataDir, lake, groupId);
    logger.info({ group: config.lakeGroup, groupId }, 'lake opened to a group');
  } else if (await closeToGroup(config.dataDir, lake)) {
    logger.warn({}, 'lake closed to its group, since TRIBUTARY_LAKE_GROUP is not set');
  }
}

/** Throws `locked` if another service runs one of these processes on the data folder, even if its lock was lost. */
function assertAlone(config: Config, own: readonly Role[], processes: readonly string[]): void {
  const rival = findCompetingService(dataPaths(config.dataDir).run, processes);
  if (rival !== undefined)
    throw new AppError('locked', `${config.dataDir} is in use by ${rival}`, { hint: describeWayOut(config, own) });
}

/** Returns the hint of `locked`: which roles may run at the same time depends on the broker. */
export function describeWayOut(config: Config, own: readonly Role[]): string {
  if (!runsBroker(config, own) || own.length === roles.length)
    return 'Stop that one first, or use another data folder.';
  return 'Stop that one first. To run ingest and compact as separate services, set TRIBUTARY_NATS_URL of each to the same NATS server. A service with --role export alone needs none.';
}

/** Pins the folders of the service, except those of the report files, which the export role owns. */
function pinFolders(config: Config, own: readonly Role[]): FolderHandles {
  const { nats, lake } = dataPaths(config.dataDir);
  const store = runsBroker(config, own) ? [nats, path.join(nats, 'store'), path.join(nats, 'store', 'jetstream')] : [];
  const tables = [...datasets.keys()].map((table) => path.join(lake, table));
  return openFolderHandles([config.dataDir, ...store, lake, ...tables, logFolderOf(config)]);
}

/** Prepares the data folder for the roles of a service, and pins and watches it. Errors: `locked`, `data_format`, `disk`. */
export async function openServiceFolders({ options, closers, supervisors }: ServiceStart) {
  const { config, logger, roles: own } = options;
  const paths = dataPaths(config.dataDir);
  await ensureDataFolder(config.dataDir, [paths.run]);
  const processes = [...(runsBroker(config, own) ? ['nats-server'] : []), ...own];
  const checkAlone = (): void => assertAlone(config, own, processes);
  checkAlone();
  if (!config.isScratch) await raiseDataFormat(config.dataDir);
  if (config.storage.state !== undefined) await raiseStoredFormat(config.dataDir);
  sweepServiceStates(paths.run);
  await keepAccessRevision(paths);
  const pins = pinFolders(config, own);
  closers.add('folders', () => pins.close());
  const storeWatch = createStoreWatch(path.join(paths.nats, 'store'));
  let findBrokerPid: (() => number | undefined) | undefined;
  const watch = startFolderWatch({
    dataDir: config.dataDir,
    pins,
    findRival: () => findCompetingService(paths.run, processes),
    isStoreReplaced: () => storeWatch.isReplaced(findBrokerPid?.()),
    // A process that stops writes by path, which may be in another service's folder now; a kill loses nothing.
    onChange: () => supervisors.forEach((supervisor) => supervisor.renew()),
    logger,
  });
  closers.add('folder watch', () => watch.stop());
  return {
    pins,
    watch,
    assertAlone: checkAlone,
    assertOwn: watch.assertWhole,
    /** Watches the broker's store too; `brokerPid` is undefined while the broker does not run. */
    watchStore(brokerPid: () => number | undefined): void {
      findBrokerPid = brokerPid;
    },
  };
}
