import { closeSync, constants, existsSync, fstatSync, openSync } from 'node:fs';
import { isSystemError } from '../errors.ts';
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
