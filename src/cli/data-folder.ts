import path from 'node:path';
import { dataPaths, type Config, type Environment } from '../config.ts';
import { useDatasetsFolder } from '../runtime/files/package-files.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { findNamesSync } from '../runtime/files/folder-names.ts';

/**
 * What a command may do about a data folder that is not there.
 *
 * - `existing`: refuse. For whatever reads, and for changes to what must be there already: a mistyped path never looks
 * like an empty service, and nothing is created beside it.
 * - `named`: make it where `--data` or TRIBUTARY_DATA_DIR names it, and refuse where it is only the default `./data`:
 * in a wrong directory that would begin a second service.
 * - `any`: make it. `start` alone.
 */
export type DataFolderUse = 'existing' | 'named' | 'any';

/** Lists a folder; undefined when there is none. */
function findNames(folder: string): readonly string[] | undefined {
  try {
    return findNamesSync(folder);
  } catch (error) {
    if (isSystemError(error, 'ENOTDIR'))
      throw new AppError('usage', `${folder} is a file and no folder`, { hint: 'Name the data folder by --data.' });
    throw new AppError('disk', `the data folder ${folder} cannot be read`, {
      cause: error,
      hint: 'Run the command as the user that the service runs as.',
      retryable: false,
    });
  }
}

/** Says whether a folder holds anything that the service or its commands have written. */
function holdsOurs(dataDir: string, names: readonly string[]): boolean {
  const ours = Object.values(dataPaths(dataDir)).map((file) => file.slice(dataDir.length).replaceAll('/', ''));
  return names.some((name) => ours.includes(name));
}

/** Says whether somebody chose the data folder, by `--data` or the variable. */
function isNamed(option: string | undefined, environment: Environment): boolean {
  return option !== undefined || (environment['TRIBUTARY_DATA_DIR'] ?? '') !== '';
}

/**
 * Refuses a data folder that is not there, as `use` says; creates nothing itself. `option` is the value of `--data`.
 * Errors: `not_found`; `usage` for a file; `disk` when it cannot be read.
 */
export function assertDataFolder(
  { dataDir }: Config,
  use: DataFolderUse,
  option: string | undefined,
  environment: Environment,
): void {
  if (use === 'any') return;
  const names = findNames(dataDir);
  if (use === 'named') {
    if (names !== undefined || isNamed(option, environment)) return;
    throw new AppError('not_found', `there is no data folder ${dataDir}`, {
      hint: 'Run the command where the service runs, or name the folder by --data or TRIBUTARY_DATA_DIR: a folder that is named is made.',
    });
  }
  if (names !== undefined && holdsOurs(dataDir, names)) return;
  throw new AppError(
    'not_found',
    names === undefined
      ? `there is no data folder ${dataDir}`
      : `${dataDir} is no data folder: nothing of tributary is in it`,
    {
      hint: "Name the folder by --data or TRIBUTARY_DATA_DIR; 'tributary start' and 'tributary app add' make a new one.",
    },
  );
}

/** Where queries spill what does not fit into their memory, each in a room of its own. */
export const queryRooms = (spool: string): string => path.join(spool, 'query');

/** Refuses a data folder that has no lake yet. Error: `not_found`. */
export function assertLake(config: Config): void {
  const { lake } = dataPaths(config.dataDir);
  if (findNames(lake) !== undefined) return;
  throw new AppError('not_found', `there is no lake in ${config.dataDir} yet`, {
    hint: "The first 'tributary start' makes it.",
  });
}

/**
 * Sets the folder of the operator's datasets by the data folder that the words or the environment name. Commands load
 * the datasets, so this comes before a command has parsed its words.
 */
export function useDatasetsOf(words: readonly string[], environment: Environment): void {
  const index = words.findIndex((word) => word === '--data' || word.startsWith('--data='));
  const [, named = words[index + 1]] = /^--data=(.*)$/s.exec(words[index] ?? '') ?? [];
  const dataDir = (index === -1 ? undefined : named) ?? (environment['TRIBUTARY_DATA_DIR'] || 'data');
  useDatasetsFolder(dataPaths(dataDir).datasets);
}
