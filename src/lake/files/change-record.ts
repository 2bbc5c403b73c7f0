import { realpath } from 'node:fs/promises';
import path from 'node:path';
import { parseChecked, renderChecked } from '../../runtime/files/checked-json.ts';
import { AppError, isSystemError } from '../../runtime/errors.ts';

/**
 * The record of a change that is being made, as it lies on the disk. Its paths are relative to the lake's folder, with
 * `/`: a folder that is copied or moved in the midst of a change completes it on its own files, and never on those it
 * was copied from.
 */

/** A file in the folder of a change, by its name there, and its absolute path afterwards. */
export interface Move {
  readonly name: string;
  readonly to: string;
}

export interface ChangeRecord {
  readonly commitId: string;
  /** The version that the commit is made on, or a later one. */
  readonly baseVersion: number;
  /** The new names of files of the table, absolute paths: hard links, made before the commit. */
  readonly files: readonly string[];
  /** Files beside the table that are renamed into place after the commit. */
  readonly moves: readonly Move[];
  /** Files beside the table that are removed after the commit, absolute paths. */
  readonly unlink: readonly string[];
}

const hint = "Put its folder away and run 'tributary lake check': what it had begun to replace may be there twice.";

/** The error of a record that must not be followed. */
export function damagedRecord(what: string, cause?: unknown): AppError {
  return new AppError('rewrite_damaged', what, { ...(cause === undefined ? {} : { cause }), hint });
}

function isInside(relative: string): boolean {
  return (
    relative !== '' &&
    relative !== '.' &&
    relative !== '..' &&
    !relative.startsWith('../') &&
    !path.isAbsolute(relative) &&
    path.posix.normalize(relative) === relative
  );
}

function toRelative(lakeDir: string, file: string): string {
  const relative = path.relative(lakeDir, file).split(path.sep).join('/');
  if (!isInside(relative)) throw new Error(`a change of ${lakeDir} must not touch ${file}`);
  return relative;
}

/** The absolute path, below this lake, that a stored path stands for. Throws where it leads out of the lake. */
export function toAbsolute(lakeDir: string, stored: unknown): string {
  if (typeof stored !== 'string' || !isInside(stored)) throw new Error(`${String(stored)} is not a path in the lake`);
  return path.join(lakeDir, stored);
}

/** Reads a list of stored moves. Throws where one has a name or a path that none of ours has. */
export function toMoves(stored: unknown, toPath: (stored: unknown) => string): Move[] {
  if (!Array.isArray(stored)) throw new Error('moves are not a list');
  return (stored as readonly Record<string, unknown>[]).map(({ name, to }) => {
    if (typeof name !== 'string' || path.basename(name) !== name || name === '' || name === '..')
      throw new Error(`${String(name)} is not the name of a file`);
    return { name, to: toPath(to) };
  });
}

/** Reads a list of stored paths. */
export function toPaths(stored: unknown, toPath: (stored: unknown) => string): string[] {
  if (!Array.isArray(stored)) throw new Error('paths are not a list');
  return stored.map(toPath);
}

/** Renders a record for the disk. A path outside the lake is a programmer's error. */
export function renderRecord(lakeDir: string, record: ChangeRecord): string {
  return renderChecked({
    ...record,
    files: record.files.map((file) => toRelative(lakeDir, file)),
    moves: record.moves.map(({ name, to }) => ({ name, to: toRelative(lakeDir, to) })),
    unlink: record.unlink.map((file) => toRelative(lakeDir, file)),
  });
}

/**
 * Reads the text of `file`, the record of a change in the lake at `lakeDir`. Errors: `rewrite_damaged` when it is damaged
 * or names a place outside the lake.
 */
export function parseRecord(file: string, text: string, lakeDir: string): ChangeRecord {
  try {
    const { commitId, baseVersion, files, moves, unlink } = parseChecked(text);
    if (typeof commitId !== 'string' || typeof baseVersion !== 'number') throw new Error('it names no commit');
    const toPath = (stored: unknown): string => toAbsolute(lakeDir, stored);
    return {
      commitId,
      baseVersion,
      files: toPaths(files, toPath),
      moves: toMoves(moves, toPath),
      unlink: toPaths(unlink, toPath),
    };
  } catch (error) {
    throw damagedRecord(`${file} is damaged`, error);
  }
}

/** The real path of a folder, or of its nearest parent that is there. */
async function findRealFolder(folder: string): Promise<string> {
  try {
    return await realpath(folder);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
    return findRealFolder(path.dirname(folder));
  }
}

/**
 * Refuses a change whose files lie, by a symbolic link, outside the lake: a copied link would lead into the original.
 * Errors: `rewrite_damaged`.
 */
export async function assertInsideLake(lakeDir: string, commitId: string, files: readonly string[]): Promise<void> {
  const root = await realpath(lakeDir);
  for (const folder of new Set(files.map((file) => path.dirname(file)))) {
    const real = await findRealFolder(folder);
    if (real === root || real.startsWith(root + path.sep)) continue;
    throw new AppError(
      'rewrite_damaged',
      `the rewrite ${commitId} would change files outside the lake: ${folder} is a link to ${real}`,
      { hint: 'Replace the link by the folder itself, then start again.' },
    );
  }
}
