import { statSync, type Stats } from 'node:fs';

/** Names one folder for as long as somebody has it open: its number is given to no other until then. */
export function folderIdOf({ dev, ino }: Pick<Stats, 'dev' | 'ino'>): string {
  return `${dev}:${ino}`;
}

/** The folder that is at a path now, symbolic links followed; undefined when there is none, or it cannot be reached. */
export function findFolderId(folder: string): string | undefined {
  try {
    const stats = statSync(folder, { throwIfNoEntry: false });
    return stats?.isDirectory() === true ? folderIdOf(stats) : undefined;
  } catch {
    return undefined;
  }
}

/** The folders that a process was started on, each with its id, as its supervisor saw them. */
export type FolderIds = Readonly<Record<string, string>>;

/**
 * Says whether every folder is still the one that it was. A few microseconds: it may be asked for each group of events.
 */
export function areSameFolders(ids: FolderIds): boolean {
  return Object.entries(ids).every(([folder, id]) => findFolderId(folder) === id);
}
