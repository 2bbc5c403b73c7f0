import { startPollLoop } from '../async/poll-loop.ts';
import { AppError, describeError, isSystemError } from '../errors.ts';
import type { Stoppable } from '../lifecycle.ts';
import type { Logger } from '../logger.ts';
import type { Problem } from '../conditions/problem.ts';
import { closeSync, constants, existsSync, fstatSync, openSync } from 'node:fs';
import { areSameFolders, findFolderId, folderIdOf, type FolderIds } from './folder-id.ts';

/**
 * Folders that are held open, to see whether they are still what stands at their paths. Files are opened by path: once
 * a folder was moved away, removed or replaced, what is written by path goes to somebody else, and what is already open
 * goes to nowhere. A folder that is held open keeps its number, so that one made in its place has another.
 */
export interface FolderPins {
  /** Pins the folders of the list that are there and not pinned yet. */
  pin(): void;
  /** The pinned folders that are not at their paths any more. */
  findLost(): readonly string[];
  /** The pinned folders by path. */
  ids(): FolderIds;
  close(): void;
}

/** Opens a folder without making it; undefined while it is not there. */
function findDescriptor(folder: string): number | undefined {
  try {
    return openSync(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR', 'EMFILE', 'ENFILE')) return undefined;
    throw error;
  }
}

/** Pins folders. One that is not there yet is pinned once it is. */
export function openFolderPins(folders: readonly string[]): FolderPins {
  const pinned = new Map<string, { readonly fd: number; readonly id: string }>();

  function pin(): void {
    for (const folder of folders.filter((name) => !pinned.has(name))) {
      const fd = existsSync(folder) ? findDescriptor(folder) : undefined;
      if (fd === undefined) continue;
      // What lies in a folder that is lost belongs to somebody else.
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

/**
 * Looked at this often, milliseconds: some calls of stat(2), and what the broker has open. Who writes into a folder, or
 * answers for what was written there, looks for himself before.
 */
const lookEveryMs = 1000;

/** Watches whether a service still has the folders that it runs on. */
export interface FolderWatch extends Stoppable {
  /** What is wrong now; looks anew. Undefined: every folder is the service's own. */
  findLoss(): Problem | undefined;
  /** Throws `folder_lost` with what is wrong. */
  readonly assertWhole: () => void;
}

interface FolderWatchOptions {
  readonly dataDir: string;
  readonly pins: FolderPins;
  /** Names another service that runs on the folder, when there is one. */
  readonly findRival: () => string | undefined;
  /**
   * Says that files which the broker has open are no longer in its store; once it has said so, it is not asked again.
   */
  readonly isStoreReplaced: () => boolean;
  /** Called at once when folders are lost, and when all are back. */
  readonly onChange: (loss: Problem | undefined) => void;
  readonly logger: Logger;
}

const lostTodo =
  'No event is taken and nothing is written meanwhile. Put that folder back and the service goes on by itself; or stop it, and start it on the folder that is to be used from now on.';

/** The problem of a service whose folder is gone. */
export function describeLostFolder(folder: string): Problem {
  return {
    code: 'folder_lost',
    what: `the folder ${folder} was taken from under the running service: it was moved, removed or replaced`,
    todo: lostTodo,
  };
}

/** Starts the watch. */
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
        code: 'second_service',
        what: `another service runs on the data folder ${dataDir}: ${rival}`,
        todo: 'Stop one of the two. No event is taken here meanwhile.',
      };
    if (!storeReplaced) return undefined;
    return {
      code: 'broker_store_replaced',
      what: `files of the broker's store in ${dataDir} were removed or replaced while the service ran`,
      todo: 'Stop the service, see that the data folder is the one you want, and start it again: it compares the stream with the lake. No event is taken meanwhile.',
    };
  }

  function look(): void {
    pins.pin();
    storeReplaced ||= isStoreReplaced();
    const loss = findLoss();
    if (loss?.what === reported?.what) return;
    if (loss === undefined) logger.warn({ dataDir }, 'the data folder is back, the service goes on');
    reported = loss;
    onChange(loss);
  }

  const loop = startPollLoop(look, {
    everyMs: lookEveryMs,
    onError: (error) => logger.error({ dataDir, error: describeError(error) }, 'data folder cannot be checked'),
    pausesFirst: true,
  });
  return {
    findLoss,
    assertWhole() {
      const loss = findLoss();
      if (loss !== undefined) throw new AppError('folder_lost', loss.what, { hint: loss.todo });
    },
    stop: () => loop.stop(),
  };
}
