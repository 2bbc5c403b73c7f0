import path from 'node:path';
import { dataPaths, type Config } from '../config.ts';
import { events } from '../datasets/dataset.ts';
import { AppError } from '../runtime/errors.ts';
import { openFolderPins, type FolderPins } from '../runtime/files/folder-pins.ts';
import { closeToGroup, openToGroup } from '../runtime/files/group-access.ts';
import { findRival } from '../runtime/processes/service-state.ts';
import { logFolderOf, roles, runsBroker, type Role, type ServiceOptions } from './service-options.ts';

/** The data folder of a service: that it is the service's alone, which folders are held, and who may read the lake. */

/** What is asked of the folders before something runs on them; each throws. */
export interface FolderChecks {
  /** `locked`: another service runs on them. */
  readonly assertAlone: () => void;
  /** `folder_lost`: they are not the service's own any more. */
  readonly assertOwn: () => void;
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
export function assertAlone(config: Config, own: readonly Role[], processes: readonly string[]): void {
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
export function pinFolders(config: Config, own: readonly Role[]): FolderPins {
  const { nats, lake } = dataPaths(config.dataDir);
  const store = runsBroker(config, own) ? [nats, path.join(nats, 'store'), path.join(nats, 'store', 'jetstream')] : [];
  return openFolderPins([config.dataDir, ...store, lake, path.join(lake, events.table), logFolderOf(config)]);
}
