import { statSync, type Stats, readFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { hostname } from 'node:os';
import path from 'node:path';
import { stat } from 'node:fs/promises';

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

/** Where a folder lies, to name it to an operator. */
export interface FolderPlace {
  readonly host: string;
  readonly folder: string;
  /**
   * Differs between a folder and a copy of it, on another machine too. A hint only: a cloned machine has the same, and
   * a moved folder another one.
   */
  readonly fingerprint: string;
}

function readMachineId(): string {
  try {
    return readFileSync('/etc/machine-id', 'utf8').trim();
  } catch {
    return '';
  }
}

/** Finds the place of a folder that is there. */
export function findFolderPlace(folder: string): FolderPlace {
  const { dev, ino } = statSync(folder, { bigint: true });
  const fingerprint = createHash('sha256')
    .update([readMachineId(), hostname(), dev, ino].join('\n'))
    .digest('hex')
    .slice(0, 16);
  return { host: hostname(), folder: path.resolve(folder), fingerprint };
}

/** Says whether a folder, which need not be there yet, lies in another or is it; symbolic links are followed. */
export async function isWithin(folder: string, other: string): Promise<boolean> {
  const root = await stat(other, { bigint: true }).catch(() => undefined);
  for (let at = path.resolve(folder); ; at = path.dirname(at)) {
    const found = await stat(at, { bigint: true }).catch(() => undefined);
    if (at === path.resolve(other) || (root !== undefined && found?.ino === root.ino && found.dev === root.dev))
      return true;
    if (at === path.dirname(at)) return false;
  }
}
