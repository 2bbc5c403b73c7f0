import { mkdirSync, statSync, type Stats } from 'node:fs';
import path from 'node:path';
import { isSystemError } from '../errors.ts';
import { membersOf } from './checksummed-json.ts';

// Node's recursive mkdir loops forever, deaf to signals, where an existing folder does not allow new ones (below
// /proc).

const ownerOnly = 0o700;

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'its parent does not allow new folders',
  ENOTDIR: 'a part of its path is a file',
  ELOOP: 'too many symbolic links in its path',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EROFS: 'the file system is read-only',
  ENAMETOOLONG: 'the name is too long',
  ENOSPC: 'the disk is full',
  EDQUOT: "the disk's quota is used up",
};

function explain(folder: string, error: unknown, reason?: string): Error {
  const { code = '', message } = membersOf(error);
  const why = reason ?? reasons[String(code)] ?? String(message);
  return Object.assign(new Error(`cannot create the folder ${folder}: ${why}`, { cause: error }), { code });
}

/** Throws unless mkdir failed because the folder exists. `stats`: those of its path, if it leads anywhere. */
function assertThere(folder: string, error: unknown, stats: Stats | undefined): void {
  if (stats?.isDirectory() === true) return;
  if (stats !== undefined) throw explain(folder, error, `${describeFileType(stats)} has that name`);
  throw explain(folder, error, isSystemError(error, 'EEXIST') ? 'a broken symbolic link has that name' : undefined);
}

/** Names the kind of an entry, with an article. */
export function describeFileType(entry: Pick<Stats, 'isFile' | 'isFIFO' | 'isSocket' | 'isDirectory'>): string {
  if (entry.isDirectory()) return 'a folder';
  if (entry.isFIFO()) return 'a named pipe';
  if (entry.isSocket()) return 'a socket';
  return entry.isFile() ? 'a file' : 'a device';
}

function findStats(folder: string): Stats | undefined {
  try {
    return statSync(folder);
  } catch {
    return undefined;
  }
}

/** Creates a folder and its parents, mode 0700 by default. Returns the first one created; undefined if all existed. */
export function makeFolderSync(folder: string, mode = ownerOnly): string | undefined {
  try {
    mkdirSync(folder, { mode });
    return folder;
  } catch (error) {
    if (!isSystemError(error, 'ENOENT') || folder === path.dirname(folder)) {
      assertThere(folder, error, findStats(folder));
      return undefined;
    }
  }
  const first = makeFolderSync(path.dirname(folder), mode);
  try {
    mkdirSync(folder, { mode });
    return first ?? folder;
  } catch (error) {
    assertThere(folder, error, findStats(folder));
    return first;
  }
}

/** As `makeFolderSync`; an error is a rejection. */
export async function makeFolder(folder: string, mode = ownerOnly): Promise<string | undefined> {
  return makeFolderSync(folder, mode);
}
