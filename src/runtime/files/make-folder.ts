import { mkdirSync, statSync, type Stats } from 'node:fs';
import path from 'node:path';
import { isSystemError } from '../errors.ts';

/**
 * Makes folders with their parents. Not by the `recursive` of Node's own mkdir: where a folder is there and takes no
 * new one (anywhere below /proc), that tries again without end, and no signal reaches the process. Here each level is
 * tried twice.
 */

const ownerOnly = 0o700;

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'its parent takes no new folder',
  ENOTDIR: 'a part of its path is a file',
  ELOOP: 'its path leads in a circle of links',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EROFS: 'the file system is read-only',
  ENAMETOOLONG: 'the name is too long',
  ENOSPC: 'the disk is full',
  EDQUOT: "the disk's quota is used up",
};

/** A system error that keeps its code and says in words what stands in the way. */
function explain(folder: string, error: unknown, reason?: string): Error {
  const { code = '', message } = error as NodeJS.ErrnoException;
  return Object.assign(
    new Error(`the folder ${folder} cannot be made: ${reason ?? reasons[code] ?? message}`, { cause: error }),
    { code },
  );
}

/**
 * Throws unless what kept a folder from being made is that it is there. `stats` are those of its path, when it leads
 * somewhere.
 */
function assertThere(folder: string, error: unknown, stats: Stats | undefined): void {
  if (stats?.isDirectory() === true) return;
  if (stats !== undefined) throw explain(folder, error, `there is ${describeKind(stats)} of that name`);
  throw explain(
    folder,
    error,
    isSystemError(error, 'EEXIST') ? 'there is a link of that name, which leads nowhere' : undefined,
  );
}

/** What an entry of a folder is, in words, with an article. */
export function describeKind(entry: Pick<Stats, 'isFile' | 'isFIFO' | 'isSocket' | 'isDirectory'>): string {
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

/**
 * Makes a folder with its parents, mode 0700 unless another is given. Returns the first one that was made; undefined
 * when all were there. Errors: system errors, in words.
 */
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
