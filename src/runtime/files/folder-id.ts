import { statSync, type Stats, readFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { hostname } from 'node:os';
import path from 'node:path';
import { stat, realpath } from 'node:fs/promises';
import { unlessMissing } from '../errors.ts';

/** Identifies a folder while a process has it open: until then no other gets its inode. */
export function folderIdOf({ dev, ino }: Pick<Stats, 'dev' | 'ino'>): string {
  return `${dev}:${ino}`;
}

/** Returns the id of the folder at a path, symbolic links followed; undefined if it cannot be reached. */
export function findFolderId(folder: string): string | undefined {
  try {
    const stats = statSync(folder, { throwIfNoEntry: false });
    return stats?.isDirectory() === true ? folderIdOf(stats) : undefined;
  } catch {
    return undefined;
  }
}

/** Ids of the folders that a process was started on, by path. */
export type FolderIds = Readonly<Record<string, string>>;

/** Reports whether every folder is still the same one. Takes microseconds: each group commit may call it. */
export function areSameFolders(ids: FolderIds): boolean {
  return Object.entries(ids).every(([folder, id]) => findFolderId(folder) === id);
}

export interface FolderLocation {
  readonly host: string;
  readonly folder: string;
  /** A hint that differs between copies of a folder. Moving changes it; a cloned machine has the same one. */
  readonly fingerprint: string;
}

function readMachineId(): string {
  try {
    return readFileSync('/etc/machine-id', 'utf8').trim();
  } catch {
    return '';
  }
}

export function findFolderLocation(folder: string): FolderLocation {
  const { dev, ino } = statSync(folder, { bigint: true });
  const fingerprint = createHash('sha256')
    .update([readMachineId(), hostname(), dev, ino].join('\n'))
    .digest('hex')
    .slice(0, 16);
  return { host: hostname(), folder: path.resolve(folder), fingerprint };
}

/** Reports whether a folder, which need not exist yet, is another one or inside it. Follows symbolic links. */
export async function isWithin(folder: string, other: string): Promise<boolean> {
  const root = await stat(other, { bigint: true }).catch(() => undefined);
  for (let at = path.resolve(folder); ; at = path.dirname(at)) {
    const found = await stat(at, { bigint: true }).catch(() => undefined);
    if (at === path.resolve(other) || (root !== undefined && found?.ino === root.ino && found.dev === root.dev))
      return true;
    if (at === path.dirname(at)) return false;
  }
}

/** Returns the real path of a folder, or of its nearest existing parent. */
export async function findRealFolder(folder: string): Promise<string> {
  return (await unlessMissing(realpath(folder), undefined)) ?? (await findRealFolder(path.dirname(folder)));
}
