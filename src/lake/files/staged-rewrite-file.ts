import { realpath } from 'node:fs/promises';
import path from 'node:path';
import { parseChecked, renderChecked } from '../../runtime/files/checked-json.ts';
import { AppError, isSystemError } from '../../runtime/errors.ts';
import type { Intent, Move } from './staged-rewrite.ts';

/**
 * The intent of a rewrite as it lies on the disk. Its paths are relative to the lake's folder, with `/`: a folder that
 * is copied or moved in the midst of a rewrite finishes it on its own files, and never on those it was copied from.
 * Version 0.2 wrote absolute paths; they are read as the same places below this lake.
 */

/** The end of a path of version 0.2 that lies in a lake: a data file of the table, or a file of failed events. */
const lakePath = /\/((?:events\/(?:fresh\/[^/]+|kind=[^/]+\/date=[^/]+\/[^/]+)|failed\/[^/]+))$/;

const hint = "Put its folder away and run 'tributary lake check': what it had begun to replace may be there twice.";

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
  if (!isInside(relative)) throw new Error(`a rewrite of ${lakeDir} must not touch ${file}`);
  return relative;
}

/** Renders an intent for the disk. A path outside the lake is a programmer's error. */
export function renderIntent(lakeDir: string, intent: Intent): string {
  const toStored = (moves: readonly Move[]): Move[] =>
    moves.map((move) => ({ ...move, to: toRelative(lakeDir, move.to) }));
  const { movesAfter } = intent;
  return renderChecked({
    ...intent,
    moves: toStored(intent.moves),
    ...(movesAfter === undefined ? {} : { movesAfter: toStored(movesAfter) }),
    unlink: intent.unlink.map((file) => toRelative(lakeDir, file)),
  });
}

/** The absolute path, below this lake, that a stored path stands for. */
function toAbsolute(lakeDir: string, stored: unknown): string {
  if (typeof stored !== 'string') throw new Error('a path is no text');
  const relative = path.isAbsolute(stored) ? lakePath.exec(path.posix.normalize(stored))?.[1] : stored;
  if (relative === undefined || !isInside(relative)) throw new Error(`${stored} is no place in the lake`);
  return path.join(lakeDir, relative);
}

/**
 * Reads the text of `file`, the intent of a rewrite in the lake at `lakeDir`. Errors: `rewrite_damaged` when it is
 * damaged or names a place outside the lake.
 */
export function parseIntent(file: string, text: string, lakeDir: string): Intent {
  try {
    const intent = parseChecked(text) as unknown as Intent;
    const toMoves = (stored: readonly Move[]): Move[] =>
      stored.map(({ name, to }) => {
        if (path.basename(name) !== name || name === '' || name === '..')
          throw new Error(`${name} is no name of a staged file`);
        return { name, to: toAbsolute(lakeDir, to) };
      });
    const { movesAfter } = intent;
    return {
      ...intent,
      moves: toMoves(intent.moves),
      ...(movesAfter === undefined ? {} : { movesAfter: toMoves(movesAfter) }),
      unlink: intent.unlink.map((stored) => toAbsolute(lakeDir, stored)),
    };
  } catch (error) {
    throw new AppError('rewrite_damaged', `${file} is damaged`, { cause: error, hint });
  }
}

/** The real place of a folder, or of its nearest parent that is there. */
async function findRealFolder(folder: string): Promise<string> {
  try {
    return await realpath(folder);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
    return findRealFolder(path.dirname(folder));
  }
}

/**
 * Refuses an intent whose files lie, by a symbolic link, outside the lake: a copied link would lead into the original.
 * Errors: `rewrite_damaged`.
 */
export async function assertInsideLake(lakeDir: string, intent: Intent): Promise<void> {
  const root = await realpath(lakeDir);
  const folders = new Set(
    [...intent.moves, ...(intent.movesAfter ?? [])]
      .map(({ to }) => to)
      .concat(intent.unlink)
      .map((file) => path.dirname(file)),
  );
  for (const folder of folders) {
    const real = await findRealFolder(folder);
    if (real === root || real.startsWith(root + path.sep)) continue;
    throw new AppError(
      'rewrite_damaged',
      `the rewrite ${intent.commitId} would change files outside the lake: ${folder} is a link to ${real}`,
      { hint: 'Replace the link by the folder itself, then start again.' },
    );
  }
}
