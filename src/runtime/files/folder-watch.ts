import { startPollLoop } from '../async/poll-loop.ts';
import { AppError, describeError, isSystemError } from '../errors.ts';
import type { Stoppable } from '../lifecycle.ts';
import type { Logger } from '../logger.ts';
import type { Problem } from '../problems/problem.ts';
import { closeSync, constants, existsSync, fstatSync, openSync } from 'node:fs';
import { areSameFolders, findFolderId, folderIdOf, type FolderIds } from './folder-id.ts';

/** Folders that are held open: a path with another inode shows that its folder was moved, removed or replaced. */
export interface FolderHandles {
  /** Pins the folders of the list that exist and are not pinned yet. */
  pin(): void;
  findLost(): readonly string[];
  ids(): FolderIds;
  close(): void;
}

function findDescriptor(folder: string): number | undefined {
  try {
    return openSync(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR', 'EMFILE', 'ENFILE')) return undefined;
    throw error;
  }
}

/** Pins folders. A missing one is pinned once it exists. */
export function openFolderHandles(folders: readonly string[]): FolderHandles {
  const pinned = new Map<string, { readonly fd: number; readonly id: string }>();

  function pin(): void {
    for (const folder of folders.filter((name) => !pinned.has(name))) {
      const fd = existsSync(folder) ? findDescriptor(folder) : undefined;
      if (fd === undefined) continue;
      // A replaced folder has the data of another service.
      if (areSameFolders(ids())) pinned.set(folder, { fd, id: folderIdOf(fstatSync(fd)) });
      else closeSync(fd);
    }
  }

  function ids(): FolderIds {
    return Object.fromEntries([...pinned].map(([folder, { id }]) => [folder, id]));
  }

  pin();
  return {
    pin,
    ids,
    findLost: () => [...pinned].filter(([folder, { id }]) => findFolderId(folder) !== id).map(([folder]) => folder),
    close() {
      for (const { fd } of pinned.values()) closeSync(fd);
      pinned.clear();
    },
  };
}

/** Interval between checks, ms. Writers also check before they write or acknowledge. */
const pollIntervalMs = 1000;

export interface FolderWatch extends Stoppable {
  /** Checks now and returns the problem; undefined if every folder is the service's. */
  findLoss(): Problem | undefined;
  readonly assertWhole: () => void;
}

interface FolderWatchOptions {
  readonly dataDir: string;
  readonly pins: FolderHandles;
  readonly findRival: () => string | undefined;
  /** Reports whether the broker's open files are no longer in its store. Not called again after that. */
  readonly isStoreReplaced: () => boolean;
  /** Called when folders are lost and when all are back. */
  readonly onChange: (loss: Problem | undefined) => void;
  readonly logger: Logger;
}

const lostTodo =
  'Imports are rejected and nothing is written. Move the original folder back, and the service resumes; or restart the service on the new folder.';

export function describeLostFolder(folder: string): Problem {
  return {
    code: 'data_folder_replaced',
    message: `the folder ${folder} was moved, removed or replaced while the service ran`,
    action: lostTodo,
  };
}

export function startFolderWatch({
  dataDir,
  pins,
  findRival,
  isStoreReplaced,
  onChange,
  logger,
}: FolderWatchOptions): FolderWatch {
  let reported: Problem | undefined;
  let storeReplaced = false;

  function findLoss(): Problem | undefined {
    const [lost] = pins.findLost();
    if (lost !== undefined) return describeLostFolder(lost);
    const rival = findRival();
    if (rival !== undefined)
      return {
        code: 'data_folder_shared',
        message: `another service runs on the data folder ${dataDir}: ${rival}`,
        action: 'Stop one of the two. This service rejects imports until then.',
      };
    if (!storeReplaced) return undefined;
    return {
      code: 'broker_store_replaced',
      message: `files of the broker's store in ${dataDir} were removed or replaced while the service ran`,
      action:
        'Check that the data folder is the right one, and restart the service, which compares the stream with the lake. Imports are rejected until then.',
    };
  }

  function check(): void {
    pins.pin();
    storeReplaced ||= isStoreReplaced();
    const loss = findLoss();
    if (loss?.message === reported?.message) return;
    if (loss === undefined) logger.warn({ dataDir }, 'data folder restored, the service resumes');
    reported = loss;
    onChange(loss);
  }

  const loop = startPollLoop(check, {
    everyMs: pollIntervalMs,
    onError: (error) => logger.error({ dataDir, error: describeError(error) }, 'cannot check data folder'),
    pausesFirst: true,
  });
  return {
    findLoss,
    assertWhole() {
      const loss = findLoss();
      if (loss !== undefined) throw new AppError('folder_lost', loss.message, { hint: loss.action });
    },
    stop: () => loop.stop(),
  };
}
