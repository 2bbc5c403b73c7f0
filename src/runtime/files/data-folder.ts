import { constants } from 'node:fs';
import { access, readdir } from 'node:fs/promises';
import path from 'node:path';
import { ensureFolders } from './durable-file.ts';
import { AppError, isSystemError } from '../errors.ts';
import { describeKind } from './make-folder.ts';

/** Folders of the data folder, itself first, in which a start or a command opens files by their names. */
const searched = ['.', 'keys', 'nats', 'lake', 'lake/events/_delta_log', 'run'];

/** Names an entry that is opened like a file and may never answer: a named pipe waits until somebody else opens it. */
async function findObstacle(folder: string): Promise<string | undefined> {
  const entries = await readdir(folder, { withFileTypes: true }).catch((error: unknown) => {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return [];
    throw error;
  });
  const obstacle = entries.find((entry) => entry.isFIFO() || entry.isCharacterDevice());
  return obstacle === undefined
    ? undefined
    : `${path.join(folder, obstacle.name)} is ${describeKind(obstacle)}, which has no place there`;
}

/**
 * Makes a data folder, and the folders named `inside` it, unless they are there; durable when it returns. Whoever uses
 * a data folder calls this first. Errors: `disk`, in one sentence, where it cannot be made, read or written, or holds
 * what would keep its reader waiting for ever.
 */
export async function ensureDataFolder(dataDir: string, inside: readonly string[] = []): Promise<void> {
  let obstacle: string | undefined;
  try {
    await ensureFolders([dataDir, ...inside]);
    await access(dataDir, constants.R_OK | constants.W_OK | constants.X_OK);
    for (const name of searched) obstacle ??= await findObstacle(path.join(dataDir, name));
  } catch (error) {
    throw new AppError('disk', `the data folder ${dataDir} cannot be used`, {
      cause: error,
      hint: 'Name another by --data, or make it one that can be read and written.',
      retryable: false,
    });
  }
  if (obstacle !== undefined)
    throw new AppError('disk', `the data folder ${dataDir} cannot be used: ${obstacle}`, {
      hint: 'Move it away.',
      retryable: false,
    });
}
