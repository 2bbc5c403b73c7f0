/**
 * The command line: one verb a file.
 *
 * In: words and environment, from src/main.ts. Out: JSON on standard output, a line for a person on standard error, an
 * exit code.
 * Invariant: a command opens, calls and answers; what it does is in a store or a stage. Its file declares its words and
 * options once: program.ts parses by that, help.ts shows it. A data folder that is not there, or is of a newer version,
 * is refused (resolveConfig).
 * Crash: as the stage that it calls says; a command that was killed can be repeated.
 */
import type { Interface } from 'node:readline';
import { parseConfig, type Config, type Environment, dataPaths } from '../config.ts';
import { assertDataFormat } from '../runtime/files/data-format.ts';
import { flag, folder, type Declared } from './words.ts';
import path from 'node:path';
import { createClock, type Clock } from '../runtime/clock.ts';
import { useDatasetsFolder } from '../runtime/files/package-files.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { findNamesSync } from '../runtime/files/folder-names.ts';

/** What a command gets from the process it runs in. */
export interface CommandContext {
  readonly environment: Environment;
  /** The program's entry file, for commands that start it again as a child. */
  readonly entry: string;
  /** Writes one JSON answer, as one line, on standard output. */
  readonly answer: (value: unknown) => void;
  /** Writes one line for a person, on standard output. */
  readonly print: (line: string) => void;
  /** Writes one line for a person, on standard error. */
  readonly note: (line: string) => void;
  /** Writes a text or bytes on standard output, and waits until it can take more. */
  readonly write?: (text: string | Uint8Array) => Promise<void>;
  /** Opens a prompt on the terminal; absent where there is none. */
  readonly openPrompt?: () => Interface;
  /** Reads standard input; absent where there is none. */
  readonly input?: () => AsyncIterable<Uint8Array>;
  /** Standard output is a terminal, so many columns wide: a person reads the answers. */
  readonly screen?: { readonly columns: number };
  /** Standard error is a terminal: a person sees how far a command is. */
  readonly isTerminal?: boolean;
  /** Shows how far a command is, in the place of what it showed before; absent where standard error is no terminal. */
  readonly show?: (line: string) => void;
  /** Asks a person at the terminal; absent where there is none. */
  readonly confirm?: (question: string) => Promise<boolean>;
  /** Aborted by the first SIGTERM or SIGINT. */
  readonly stop: AbortSignal;
  /** Aborted by the second. */
  readonly force: AbortSignal;
  /** Aborted when something was written that nobody reads any more: the pipe of standard output is closed. */
  readonly unread?: AbortSignal;
}

/** Words or options by name. A word's name is the one that its usage shows; `noExport` is the option `--no-export`. */
export type Declarations = Readonly<Record<string, Declared<unknown>>>;

/** Options every command takes, unless it has one of that name. */
export const commonOptions = {
  data: folder('the data folder (TRIBUTARY_DATA_DIR, or ./data)'),
  json: flag('answer as JSON lines on a terminal too'),
};
type CommonOptions = typeof commonOptions;

/** What options were, by their names. */
export type OptionValues<O> = { readonly [K in keyof O]: O[K] extends Declared<infer T> ? T : never };
/** A verb without words of its own has the names of all. */
type WordValues<W> = string extends keyof W
  ? unknown
  : {
      readonly [K in keyof W]: W[K] extends { readonly isOptional: true }
        ? OptionValues<W>[K]
        : NonNullable<OptionValues<W>[K]>;
    };

/** What the words and options of a command were, by their names. */
type Given<W extends Declarations, O extends Declarations> = WordValues<W> & GivenOptions<O>;

/** What the options of a command were, the common ones too. */
export type GivenOptions<O extends Declarations> = string extends keyof O
  ? OptionValues<CommonOptions>
  : OptionValues<O> & OptionValues<Omit<CommonOptions, keyof O>>;

interface Described {
  readonly name: string;
  /** What it does, for the lists of the help: no capital, no full stop. Absent: an internal command, which they leave out. */
  readonly summary?: string;
  /** How it is called, behind its name, where that says more than the list of its words and options. */
  readonly usage?: readonly string[];
  /** Sentences for its own help. */
  readonly details?: readonly string[];
}

/** A command that does something: its declaration, and `run`, which returns the exit code; nothing means 0. */
export interface Verb<W extends Declarations = Declarations, O extends Declarations = Declarations> extends Described {
  /** Words that must be given in this order. */
  readonly words?: W;
  readonly options?: O;
  /** Calls of it, without `tributary`; a test parses each. */
  readonly examples?: readonly string[];
  /** What its exit codes mean where that is more than done and failed. */
  readonly exitCodes?: Readonly<Record<number, string>>;
  /** Its answers are the rows of one list: on a terminal a table. */
  readonly isList?: boolean;
  /** It works on no data folder: `--data` is refused. */
  readonly isWithoutData?: boolean;
  run(given: Given<W, O>, context: CommandContext): Promise<number | void>;
}

/** A name with verbs of its own: `tributary app add`. */
export interface Group extends Described {
  readonly verbs: readonly Verb[];
  /** Answers an error, of the words too, in another way than the program does; returns the exit code, or throws it. */
  readonly recover?: (error: unknown, words: readonly string[], context: CommandContext) => number;
}

/** A file of this folder: a name of the command line. */
export type Command = Verb | Group;

/** Declares a verb: gives `run` the types of its words and options. */
export function verb<W extends Declarations, O extends Declarations>(declaration: Verb<W, O>): Verb {
  return declaration as unknown as Verb;
}

/**
 * The settings of a command: the environment, and above it the command's own options (`--data`, ports, host). Every
 * command that touches a data folder comes through here, so that one which is not there is refused unless `use` says
 * otherwise. Errors: `config_invalid`, `not_found`; `data_format` when the data folder is one that this program must
 * not touch.
 */
export function resolveConfig(
  environment: Environment,
  options: Readonly<Record<string, string | undefined>>,
  use: DataFolderUse = 'existing',
): Config {
  const config = parseConfig({
    ...environment,
    ...Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)),
  });
  assertDataFolder(config, use, options['TRIBUTARY_DATA_DIR'], environment);
  assertDataFormat(config.dataDir);
  return config;
}

/** A data folder that a command works on. */
export interface OpenData {
  readonly config: Config;
  readonly paths: ReturnType<typeof dataPaths>;
  readonly clock: Clock;
}

/** Opens the data folder that `--data` names. Errors: those of `resolveConfig`. */
export function openData(
  data: string | undefined,
  { environment }: Pick<CommandContext, 'environment'>,
  use: DataFolderUse = 'existing',
): OpenData {
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: data }, use);
  return { config, paths: dataPaths(config.dataDir), clock: createClock(config.clockOffsetSeconds) };
}

/** Opens a data folder that has a lake. Errors: those of `openData`, `not_found`. */
export function openLake(data: string | undefined, context: Pick<CommandContext, 'environment'>): OpenData {
  const opened = openData(data, context);
  if (findNames(opened.paths.lake) !== undefined) return opened;
  throw new AppError('not_found', `there is no lake in ${opened.config.dataDir} yet`, {
    hint: "The first 'tributary start' makes it.",
  });
}

/**
 * What a command may do about a data folder that is not there.
 *
 * - `existing`: refuse. For whatever reads, and for changes to what must be there already: a mistyped path never looks
 * like an empty service, and nothing is created beside it.
 * - `named`: make it where `--data` or TRIBUTARY_DATA_DIR names it, and refuse where it is only the default `./data`:
 * in a wrong directory that would begin a second service.
 * - `any`: make it. `start` alone.
 */
type DataFolderUse = 'existing' | 'named' | 'any';

/** Lists a folder; undefined when there is none. */
function findNames(dir: string): readonly string[] | undefined {
  try {
    return findNamesSync(dir);
  } catch (error) {
    if (isSystemError(error, 'ENOTDIR'))
      throw new AppError('usage', `${dir} is a file and no folder`, { hint: 'Name the data folder by --data.' });
    throw new AppError('disk', `the data folder ${dir} cannot be read`, {
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
function assertDataFolder(
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

/** The option of a command that asks before it takes something away. */
export const yesOption = { yes: flag('do not ask on a terminal') } as const;

/**
 * Asks a person at the terminal whether to go on; a script is not asked. Error: `usage` where the answer is not yes:
 * nothing was changed.
 */
export async function assertConfirmed(
  question: string,
  { yes }: { readonly yes: boolean },
  { confirm }: Pick<CommandContext, 'confirm'>,
): Promise<void> {
  if (yes || confirm === undefined || (await confirm(question))) return;
  throw new AppError('usage', 'nothing was changed', { hint: 'Answer yes, or pass --yes.' });
}
