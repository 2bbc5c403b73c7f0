import { findRealFolder } from '../../runtime/files/folder-id.ts';
import path from 'node:path';
import { parseChecksummed, renderChecksummed } from '../../runtime/files/checksummed-json.ts';
import { AppError } from '../../runtime/errors.ts';

/** Paths in the record of a change are relative to the lake's folder, so that a copy changes only its own files. */

/** Name of a file in the folder of a change, and its final absolute path. */
export interface Move {
  readonly name: string;
  readonly to: string;
}

export interface ChangeRecord {
  readonly commitId: string;
  /** The version below the commit, or an earlier one. */
  readonly baseVersion: number;
  /** Absolute paths of new files of the table, which are hard-linked before the commit. */
  readonly files: readonly string[];
  /** Files outside the table that are renamed after the commit. */
  readonly moves: readonly Move[];
  /** Absolute paths of files outside the table that are removed after the commit. */
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

function toRelative(lakeDir: string, file: string): string {
  const relative = path.relative(lakeDir, file).split(path.sep).join('/');
  if (!isInside(relative)) throw new Error(`${file} is outside the lake ${lakeDir}`);
  return relative;
}

/** Returns the absolute path of a stored path. Throws if it is outside the lake. */
export function toAbsolute(lakeDir: string, stored: unknown): string {
  if (typeof stored !== 'string' || !isInside(stored)) throw new Error(`${String(stored)} is not a path in the lake`);
  return path.join(lakeDir, stored);
}

/** Parses stored moves. Throws if one has an unexpected name or path. */
export function toMoves(stored: unknown, toPath: (stored: unknown) => string): Move[] {
  if (!Array.isArray(stored)) throw new Error('moves are not a list');
  return (stored as readonly Record<string, unknown>[]).map(({ name, to }) => {
    if (typeof name !== 'string' || path.basename(name) !== name || name === '' || name === '..')
      throw new Error(`${String(name)} is not the name of a file`);
    return { name, to: toPath(to) };
  });
}

export function toPaths(stored: unknown, toPath: (stored: unknown) => string): string[] {
  if (!Array.isArray(stored)) throw new Error('paths are not a list');
  return stored.map(toPath);
}

/** Renders a record. Throws for a path outside the lake. */
export function renderRecord(lakeDir: string, record: ChangeRecord): string {
  return renderChecksummed({
    ...record,
    files: record.files.map((file) => toRelative(lakeDir, file)),
    moves: record.moves.map(({ name, to }) => ({ name, to: toRelative(lakeDir, to) })),
    unlink: record.unlink.map((file) => toRelative(lakeDir, file)),
  });
}

/** Parses a record's text. `file`: for errors. Error: `rewrite_damaged`, also for a path outside the lake. */
export function parseChangeRecord(file: string, text: string, lakeDir: string): ChangeRecord {
  try {
    const { commitId, baseVersion, files, moves, unlink } = parseChecksummed(text);
    if (typeof commitId !== 'string' || typeof baseVersion !== 'number')
      throw new Error('it has no commit id or version');
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

/** Throws `rewrite_damaged` if a symbolic link leads outside the lake: a copied link would name the original. */
export async function assertInsideLake(lakeDir: string, commitId: string, files: readonly string[]): Promise<void> {
  const root = await findRealFolder(lakeDir);
  for (const folder of new Set(files.map((file) => path.dirname(file)))) {
    const real = await findRealFolder(folder);
    if (real === root || real.startsWith(root + path.sep)) continue;
    throw new AppError(
      'rewrite_damaged',
      `the rewrite ${commitId} would change files outside the lake: ${folder} is a link to ${real}`,
      { hint: 'Replace the link with the folder, then restart.' },
    );
  }
}
