import { closeSync, constants, openSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { writeFileDurably, ensureFolders } from './durable-file.ts';
import { AppError, isSystemError, unlessMissing } from '../errors.ts';
import { membersOf } from './checksummed-json.ts';
import { findBuild } from './package-files.ts';
import { access, readdir } from 'node:fs/promises';
import process from 'node:process';
import { describeFileType } from './make-folder.ts';

/**
 * The format of a data folder, or of the state in a bucket: a number in `format.json`, raised when an older program
 * would misread the layout. A program rejects newer formats, unfinished restores and moves, and data that was moved
 * away. Without the file, the format is 0 (before 0.3). Programs of all versions read the file, so it has no checksum.
 */

/** The format that this program writes, and the newest that it reads. */
export const dataFormat = 1;
/** The format of data that was moved away: programs that do not know `movedTo` reject it too. */
export const movedFormat = dataFormat + 1;

export interface DataFormat {
  readonly format: number;
  readonly program: string;
  /** Whether a restore or a move to this data folder or bucket is unfinished. */
  readonly restoring: boolean;
  /** Source of the unfinished move; undefined for a restore. */
  readonly movedFrom: string | undefined;
  /** Id of the newest run of the unfinished move. */
  readonly move: string | undefined;
  /** The data folder or the address that has the data now. */
  readonly movedTo: string | undefined;
}

/** A format as it is written. */
export type NewFormat = Pick<DataFormat, 'format'> & Partial<Omit<DataFormat, 'format' | 'program'>>;

const fileName = 'format.json';

export function dataFormatPath(dataDir: string): string {
  return path.join(dataDir, fileName);
}

/** Reads a file without blocking: a named pipe in its place would make every command hang. */
function readText(file: string): string {
  const fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    return readFileSync(fd, 'utf8');
  } finally {
    closeSync(fd);
  }
}

const textOf = (member: unknown): string | undefined => (typeof member === 'string' ? member : undefined);

/** Parses the text of a format. `file`: its name, for the error. Error: `record_damaged`. */
export function parseDataFormat(text: string, file: string): DataFormat {
  try {
    const { format, program, restoring, movedFrom, move, movedTo } = membersOf(JSON.parse(text));
    if (typeof format !== 'number' || !Number.isSafeInteger(format) || format < 0)
      throw new SyntaxError('it has no valid format number');
    return {
      format,
      program: textOf(program) ?? 'an unknown version',
      restoring: restoring === true,
      movedFrom: textOf(movedFrom),
      move: textOf(move),
      movedTo: textOf(movedTo),
    };
  } catch (error) {
    throw new AppError('record_damaged', `${file} is damaged`, {
      cause: error,
      hint: `If this version of the program has used the data before, write {"format":${dataFormat}} into that file.`,
    });
  }
}

export function renderDataFormat(format: NewFormat): string {
  return `${JSON.stringify({ ...format, program: findBuild().version })}\n`;
}

/**
 * Describes an error of a folder that belongs to another user, such as a volume that root created: reason and hint.
 * Undefined for another cause.
 */
function findForeignOwner(error: unknown, folder: string) {
  const user = process.geteuid?.();
  if (user === undefined || !isSystemError(error, 'EACCES', 'EPERM')) return undefined;
  // A folder below one that this user must not enter has no visible owner.
  let [nearest, owner] = [path.resolve(folder), findOwner(folder)];
  for (; owner === undefined && nearest !== path.dirname(nearest); owner = findOwner(nearest))
    nearest = path.dirname(nearest);
  if (owner === undefined || owner === user) return undefined;
  return {
    why: `: ${nearest} belongs to user ${owner}, and this process runs as user ${user}`,
    hint: `Make ${user}:${process.getegid?.() ?? user} the owner of the folder or volume, or pass another folder with --data.`,
  };
}

function findOwner(folder: string): number | undefined {
  try {
    return statSync(folder).uid;
  } catch {
    return undefined;
  }
}

/** Reads the format of a data folder; undefined without the file or folder. Errors: `record_damaged`, `disk`. */
export function findDataFormat(dataDir: string): DataFormat | undefined {
  const file = dataFormatPath(dataDir);
  let text: string;
  try {
    text = readText(file);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return undefined;
    const foreign = findForeignOwner(error, file);
    throw new AppError('disk', `cannot read ${file}${foreign?.why ?? ''}`, {
      cause: error,
      hint: foreign?.hint ?? 'Check that it is a readable file, and that --data is the right folder.',
      retryable: false,
    });
  }
  return parseDataFormat(text, file);
}

/** Rejects a format that this program does not support. Error: `data_format`. */
export function assertKnownFormat(what: string, { format, program }: Pick<DataFormat, 'format' | 'program'>): void {
  if (format <= dataFormat) return;
  throw new AppError(
    'data_format',
    `${what} has format ${format}, written by tributary ${program}, and this is tributary ${findBuild().version}, which knows formats up to ${dataFormat}`,
    {
      hint: `Use tributary ${program} or a newer one.`,
    },
  );
}

/** Throws for a restore or a move that is unfinished. */
function assertFinished(place: string, { restoring, movedFrom }: DataFormat): void {
  if (!restoring) return;
  if (movedFrom === undefined)
    throw new AppError('data_format', `a restore into ${place} is unfinished`, {
      hint: `Wait for it, or run 'tributary restore' with --data ${place} again; it starts over.`,
    });
  throw new AppError('data_format', `the move of ${movedFrom} to ${place} is unfinished`, {
    hint: "Wait for it, or run 'tributary lake move' with the settings of its source again; it continues.",
  });
}

/**
 * Rejects data of a newer format, of an unfinished restore or move, or that was moved away. `kind`: for the error, what
 * `place` is. Error: `data_format`.
 */
export function assertUsable(kind: string, place: string, found: DataFormat): void {
  const { movedTo } = found;
  if (movedTo !== undefined)
    throw new AppError('data_format', `the data of ${place} was moved to ${movedTo}`, {
      hint: movedTo.startsWith('s3://')
        ? `Set TRIBUTARY_STORAGE_URL=${movedTo}, or pass another folder with --data.`
        : `Pass --data ${movedTo}, and unset TRIBUTARY_STORAGE_URL.`,
    });
  assertKnownFormat(`${kind} ${place}`, found);
  assertFinished(place, found);
}

/** Checks the format as `assertUsable` does; a missing folder passes. Errors: `data_format`, `record_damaged`. */
export function assertDataFormat(dataDir: string): void {
  const found = findDataFormat(dataDir);
  if (found !== undefined) assertUsable('the data folder', dataDir, found);
}

export async function writeDataFormat(dataDir: string, format: NewFormat): Promise<void> {
  await writeFileDurably(dataFormatPath(dataDir), renderDataFormat(format));
}

/** Raises an older format, or none, to this program's. Errors: those of `assertDataFormat`. */
export async function raiseDataFormat(dataDir: string): Promise<void> {
  assertDataFormat(dataDir);
  if ((findDataFormat(dataDir)?.format ?? 0) < dataFormat) await writeDataFormat(dataDir, { format: dataFormat });
}

/** Folders in which a start or a command opens files by name. */
const searched = ['.', 'keys', 'nats', 'lake', 'lake/events/_delta_log', 'run'];

/** Finds an entry that blocks its reader: a named pipe waits until a writer opens it. */
async function findObstacle(folder: string): Promise<string | undefined> {
  const entries = await unlessMissing(readdir(folder, { withFileTypes: true }), [], 'ENOTDIR');
  const obstacle = entries.find((entry) => entry.isFIFO() || entry.isCharacterDevice());
  return obstacle === undefined ? undefined : `${path.join(folder, obstacle.name)} is ${describeFileType(obstacle)}`;
}

/** Creates a data folder and the folders `inside` it, durably. Error: `disk`, also for a named pipe in it. */
export async function ensureDataFolder(dataDir: string, inside: readonly string[] = []): Promise<void> {
  let obstacle: string | undefined;
  try {
    await ensureFolders([dataDir, ...inside]);
    await access(dataDir, constants.R_OK | constants.W_OK | constants.X_OK);
    for (const name of searched) obstacle ??= await findObstacle(path.join(dataDir, name));
  } catch (error) {
    const foreign = findForeignOwner(error, dataDir);
    throw new AppError('disk', `cannot use the data folder ${dataDir}${foreign?.why ?? ''}`, {
      cause: error,
      hint: foreign?.hint ?? 'Check that it can be read and written, or pass another folder with --data.',
      retryable: false,
    });
  }
  if (obstacle !== undefined)
    throw new AppError('disk', `cannot use the data folder ${dataDir}: ${obstacle}`, {
      hint: 'Remove it.',
      retryable: false,
    });
}
