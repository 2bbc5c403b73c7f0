import { closeSync, constants, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { writeFileDurably, ensureFolders } from './durable-file.ts';
import { AppError, isSystemError } from '../errors.ts';
import { readPackageJson } from './package-files.ts';
import { access, readdir } from 'node:fs/promises';
import { describeKind } from './make-folder.ts';

/**
 * The format of a data folder: a number in `format.json` that grows with each change of the layout that an older
 * program would misread. A program refuses a folder of a newer format, and an unfinished restore; a folder without the
 * file is of a version before 0.3 (format 0), and the next start raises it.
 *
 * Plain JSON without a checksum, on purpose: every later program has to read it, and so has this one what a later one
 * wrote.
 */

/** The newest format that this program knows, and the one that it writes. */
export const dataFormat = 1;

/** What `format.json` says. */
interface DataFormat {
  readonly format: number;
  /** Version of the program that wrote the file. */
  readonly program: string;
  /** A restore into the folder has begun and not ended: what lies there is no data folder yet. */
  readonly restoring: boolean;
}

const fileName = 'format.json';

/** Path of the file in a data folder. */
export function dataFormatPath(dataDir: string): string {
  return path.join(dataDir, fileName);
}

/** Version of this program. */
export function programVersion(): string {
  return (readPackageJson('package.json') as { version: string }).version;
}

/**
 * Reads a file that is there. Without waiting: a named pipe in its place would keep every command waiting, deaf to
 * signals.
 */
function readText(file: string): string {
  const fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    return readFileSync(fd, 'utf8');
  } finally {
    closeSync(fd);
  }
}

/**
 * Reads the format of a data folder; undefined where there is no file, or no folder. Errors: `record_damaged`, `disk`.
 */
export function findDataFormat(dataDir: string): DataFormat | undefined {
  const file = dataFormatPath(dataDir);
  try {
    const { format, program, restoring } = JSON.parse(readText(file)) as Partial<Record<keyof DataFormat, unknown>>;
    if (!Number.isSafeInteger(format) || (format as number) < 0) throw new SyntaxError('it names no format');
    return {
      format: format as number,
      program: typeof program === 'string' ? program : 'an unknown version',
      restoring: restoring === true,
    };
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return undefined;
    if (!(error instanceof SyntaxError) && !(error instanceof TypeError)) {
      throw new AppError('disk', `${file} cannot be read`, {
        cause: error,
        hint: 'It has to be a file that can be read; --data may name the wrong folder.',
        retryable: false,
      });
    }
    throw new AppError('record_damaged', `${file} is damaged`, {
      cause: error,
      hint: `If this version of the program has used the folder before, write {"format":${dataFormat}} into that file.`,
    });
  }
}

/** Refuses a format that this program does not know; `what` names whose it is. Errors: `data_format`. */
export function assertKnownFormat(what: string, { format, program }: Pick<DataFormat, 'format' | 'program'>): void {
  if (format <= dataFormat) return;
  throw new AppError(
    'data_format',
    `${what} has format ${format}, written by tributary ${program}, and this is tributary ${programVersion()}, which knows formats up to ${dataFormat}`,
    {
      hint: `Use tributary ${program} or a newer one.`,
    },
  );
}

/**
 * Refuses a data folder that this program cannot use: of a newer format, or in the midst of a restore. A folder that is
 * not there passes. Errors: `data_format`, `record_damaged`.
 */
export function assertDataFormat(dataDir: string): void {
  const found = findDataFormat(dataDir);
  if (found === undefined) return;
  assertKnownFormat(`the data folder ${dataDir}`, found);
  if (!found.restoring) return;
  throw new AppError('data_format', `a restore into ${dataDir} has not ended, or was interrupted`, {
    hint: `Wait for it, or run 'tributary restore' with --data ${dataDir} again: it begins anew.`,
  });
}

/** Writes the format durably. */
export async function writeDataFormat(
  dataDir: string,
  format: Pick<DataFormat, 'format'> & Partial<Pick<DataFormat, 'restoring'>>,
): Promise<void> {
  await writeFileDurably(dataFormatPath(dataDir), `${JSON.stringify({ ...format, program: programVersion() })}\n`);
}

/**
 * Raises a data folder of an older format, or of none, to this program's. The caller is about to run on it. Errors:
 * those of `assertDataFormat`.
 */
export async function raiseDataFormat(dataDir: string): Promise<void> {
  assertDataFormat(dataDir);
  // A later format puts here what has to be changed in a folder before it is one.
  if ((findDataFormat(dataDir)?.format ?? 0) < dataFormat) await writeDataFormat(dataDir, { format: dataFormat });
}

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
