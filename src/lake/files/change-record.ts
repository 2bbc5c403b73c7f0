import { findRealFolder } from '../../runtime/files/folder-id.ts';
import path from 'node:path';
import { membersOf, parseChecksummed, renderChecksummed } from '../../runtime/files/checksummed-json.ts';
import { AppError } from '../../runtime/errors.ts';

/** The record of a change has keys of the lake, so that a copy changes only its own files. */

/** Name of an object of a change, and its final key in the lake. */
export interface Move {
  readonly name: string;
  readonly to: string;
}

export interface ChangeRecord {
  readonly commitId: string;
  /** The version below the commit, or an earlier one. */
  readonly baseVersion: number;
  /** Keys of new files of the table, which are published before the commit. */
  readonly files: readonly string[];
  /** Objects outside the table that are renamed after the commit. */
  readonly moves: readonly Move[];
  /** Keys outside the table that are removed after the commit. */
  readonly unlink: readonly string[];
}

const hint = "Move its folder away and run 'tributary lake check': rows that it was replacing may exist twice.";

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

/** Returns the key of a file of the lake. Throws for a path outside. */
export function keyOf(lakeDir: string, file: string): string {
  const relative = path.relative(lakeDir, file).split(path.sep).join('/');
  if (!isInside(relative)) throw new Error(`${file} is outside the lake ${lakeDir}`);
  return relative;
}

/** Parses a stored key. Throws if it is outside the lake. */
export function toKey(stored: unknown): string {
  if (typeof stored !== 'string' || !isInside(stored)) throw new Error(`${String(stored)} is not a path in the lake`);
  return stored;
}

/** Parses stored moves. Throws if one has an unexpected name or key. */
export function toMoves(stored: unknown, parse: (stored: unknown) => string): Move[] {
  if (!Array.isArray(stored)) throw new Error('moves are not a list');
  return stored.map((move: unknown) => {
    const { name, to } = membersOf(move);
    if (typeof name !== 'string' || path.basename(name) !== name || name === '' || name === '..')
      throw new Error(`${String(name)} is not the name of a file`);
    return { name, to: parse(to) };
  });
}

export function toKeys(stored: unknown, parse: (stored: unknown) => string): string[] {
  if (!Array.isArray(stored)) throw new Error('paths are not a list');
  return stored.map(parse);
}

export function renderRecord(record: ChangeRecord): string {
  return renderChecksummed({ ...record });
}

/** Parses a record's text. `file`: for errors. Error: `rewrite_damaged`, also for a path outside the lake. */
export function parseChangeRecord(file: string, text: string): ChangeRecord {
  try {
    const { commitId, baseVersion, files, moves, unlink } = parseChecksummed(text);
    if (typeof commitId !== 'string' || typeof baseVersion !== 'number')
      throw new Error('it has no commit id or version');
    return {
      commitId,
      baseVersion,
      files: toKeys(files, toKey),
      moves: toMoves(moves, toKey),
      unlink: toKeys(unlink, toKey),
    };
  } catch (error) {
    throw damagedRecord(`${file} is damaged`, error);
  }
}

/** Throws `rewrite_damaged` if a symbolic link leads outside the lake: a copied link would name the original. */
export async function assertInsideLake(lakeDir: string, commitId: string, keys: readonly string[]): Promise<void> {
  const root = await findRealFolder(lakeDir);
  for (const folder of new Set(keys.map((key) => path.dirname(path.join(lakeDir, key))))) {
    const real = await findRealFolder(folder);
    if (real === root || real.startsWith(root + path.sep)) continue;
    throw new AppError(
      'rewrite_damaged',
      `the rewrite ${commitId} would change files outside the lake: ${folder} is a link to ${real}`,
      { hint: 'Replace the link with the folder, then restart.' },
    );
  }
}
