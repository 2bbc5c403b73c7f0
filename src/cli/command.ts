/**
 * The command line: one command per file.
 *
 * In: words and environment, from src/main.ts. Out: JSON on standard output, notes on standard error, an exit code.
 * Invariant: a command opens a store or a stage, calls it and prints the result. It declares its words and options once:
 * program.ts parses by the declaration and shows it as help. Rejects a missing data folder, or one of a newer version
 * (resolveConfig).
 * Crash: that of the stage; a killed command can be repeated.
 */
import type { Interface } from 'node:readline';
import { defined } from '../runtime/files/checksummed-json.ts';
import { parseConfig, type Config, type Environment, dataPaths } from '../config.ts';
import { connectStorage } from '../composition/storage.ts';
import { openStore } from '../runtime/store/open-store.ts';
import { assertDataFormat } from '../runtime/files/data-format.ts';
import { runAudited } from './audited-commands.ts';
import { flag, folder, type OptionSpec } from './option-specs.ts';
import path from 'node:path';
import { createClock, type Clock } from '../runtime/clock.ts';
import { useDatasetsFolder } from '../runtime/files/package-files.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { findNamesSync } from '../runtime/files/folder-names.ts';

/** The process that a command runs in. */
export interface CommandContext {
  readonly environment: Environment;
  /** Words of the command, such as `user add`; absent before the words are parsed. */
  readonly command?: string;
  /** The program's entry file, for child processes. */
  readonly entry: string;
  /** Writes a value to standard output, as one line of JSON. */
  readonly printResult: (value: unknown) => void;
  /** Writes one line of text to standard output. */
  readonly print: (line: string) => void;
  /** Writes one line of text to standard error. */
  readonly printMessage: (line: string) => void;
  /** Writes to standard output, and waits until it can accept more. */
  readonly write?: (text: string | Uint8Array) => Promise<void>;
  /** Opens a prompt on the terminal; absent if there is none. */
  readonly openPrompt?: () => Interface;
  /** Reads standard input; absent if there is none. */
  readonly input?: () => AsyncIterable<Uint8Array>;
  /** The terminal on standard output; absent for a pipe or a file. */
  readonly screen?: { readonly columns: number };
  /** Whether standard error is a terminal. */
  readonly isTerminal?: boolean;
  /** Replaces the progress line on standard error; absent without a terminal. */
  readonly printProgress?: (line: string) => void;
  /** Asks a person at the terminal; absent if there is none. */
  readonly confirm?: (question: string) => Promise<boolean>;
  /** Aborted by the first SIGTERM or SIGINT. */
  readonly stop: AbortSignal;
  /** Aborted by the second signal. */
  readonly force: AbortSignal;
  /** Aborted by a write after the reader of standard output has closed the pipe. */
  readonly unread?: AbortSignal;
}

/** Words or options by name. A word has the name that its usage shows; `noExport` is the option `--no-export`. */
export type OptionSpecs = Readonly<Record<string, OptionSpec<unknown>>>;

/** Options of every command, unless it has one of that name. */
export const commonOptions = {
  data: folder('data folder (TRIBUTARY_DATA_DIR, or ./data)'),
  json: flag('print JSON lines, also on a terminal'),
};
type CommonOptions = typeof commonOptions;

/** Values of options, by their names. */
export type OptionValues<O> = { readonly [K in keyof O]: O[K] extends OptionSpec<infer T> ? T : never };
/** Values of words, by their names. A verb without declared words has none. */
type WordValues<W> = string extends keyof W
  ? unknown
  : {
      readonly [K in keyof W]: W[K] extends { readonly isOptional: true }
        ? OptionValues<W>[K]
        : NonNullable<OptionValues<W>[K]>;
    };

/** Values of a command's options, the common ones included. */
export type ParsedOptions<O extends OptionSpecs> = string extends keyof O
  ? OptionValues<CommonOptions>
  : OptionValues<O> & OptionValues<Omit<CommonOptions, keyof O>>;

interface Described {
  readonly name: string;
  /** Line in lists of the help: no capital, no full stop. Absent for an internal command, which is not listed. */
  readonly summary?: string;
  /** Usage behind the name; absent if it is the list of words and options. */
  readonly usage?: readonly string[];
  /** Sentences for the help of the command. */
  readonly details?: readonly string[];
}

/** The declaration of a command with an action. `C` is its context. */
export interface CommandSpec<
  W extends OptionSpecs = OptionSpecs,
  O extends OptionSpecs = OptionSpecs,
  C = CommandContext,
> extends Described {
  /** Arguments, in their order. */
  readonly arguments?: W;
  readonly options?: O;
  /** Placeholder and summary for the reference, if it differs from other verbs of its group by its name only. */
  readonly family?: { readonly name: string; readonly summary: string };
  /** Sample calls, without `tributary`; a test parses each. */
  readonly examples?: readonly string[];
  /** Meanings of exit codes other than success and failure. */
  readonly exitCodes?: Readonly<Record<number, string>>;
  /** Whether it prints the rows of one list: a table on a terminal. */
  readonly isList?: boolean;
  /** Whether it has no data folder, and so no `--data`. */
  readonly isWithoutData?: boolean;
  /** Returns the exit code, an object to print, or the rows of a list; nothing means 0. */
  run(given: WordValues<W> & ParsedOptions<O>, context: C): Promise<number | object | void>;
}

/** A command with verbs: `tributary app add`. */
export interface CommandGroup extends Described {
  readonly commands: readonly CommandSpec[];
  /** Reports an error in another form and returns the exit code, or throws the error. */
  readonly recover?: (error: unknown, words: readonly string[], context: CommandContext) => number;
}

export type Command = CommandSpec | CommandGroup;

/** Declares a verb: gives `run` the types of its words and options. */
export function defineCommand<W extends OptionSpecs, O extends OptionSpecs>(
  declaration: CommandSpec<W, O>,
): CommandSpec {
  return declaration as unknown as CommandSpec;
}

/** Declares a verb that works on the data folder of `--data`, opened as `opens` says. Errors: those of `openData`. */
export function defineDataCommand<W extends OptionSpecs, O extends OptionSpecs>(
  declaration: CommandSpec<W, O, DataContext> & { readonly opens?: DataFolderUse },
): CommandSpec {
  return defineCommand<W, O>({
    ...declaration,
    async run(given, context) {
      const { data } = given as OptionValues<CommonOptions>;
      const opened = { ...context, ...(await openData(data, context, declaration.opens ?? 'existing')) };
      return await runAudited(context.command ?? '', given, opened, () => declaration.run(given, opened));
    },
  });
}

/**
 * Resolves the settings of a command: the environment, overridden by its options (`--data`, ports, host). Every command
 * on a data folder calls it: `use` decides about a missing folder. Errors: `config_invalid`, `not_found`;
 * `data_format` for a folder that this program must not use.
 */
export function resolveConfig(
  environment: Environment,
  options: Readonly<Record<string, string | undefined>>,
  use: DataFolderUse = 'existing',
): Config {
  const config = parseConfig({ ...environment, ...defined(options) });
  const usesBucket = Object.values(config.storage).some((place) => place !== undefined);
  const isNamed = (options['TRIBUTARY_DATA_DIR'] ?? environment['TRIBUTARY_DATA_DIR'] ?? '') !== '';
  if (use !== 'any' && !usesBucket) assertDataFolder(config.dataDir, use, isNamed);
  if (use !== 'moved' && !config.isScratch) assertDataFormat(config.dataDir);
  return config;
}

/** An open data folder. */
export interface OpenData {
  readonly config: Config;
  readonly paths: ReturnType<typeof dataPaths>;
  readonly clock: Clock;
}

/** The context of a verb that works on a data folder. */
export type DataContext = CommandContext & OpenData;

/**
 * Opens the data folder that `--data` names, with its buckets. Errors: those of `resolveConfig` and `connectStorage`;
 * `not_found` for a missing lake.
 */
export async function openData(
  data: string | undefined,
  { environment }: Pick<CommandContext, 'environment'>,
  use: DataFolderUse,
): Promise<OpenData> {
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: data }, use);
  await connectStorage(config);
  const paths = dataPaths(config.dataDir);
  const isThere = async (): Promise<boolean> =>
    config.storage.lake === undefined
      ? findNames(paths.lake) !== undefined
      : (await openStore(paths.lake).folders('')).length > 0;
  if (use === 'lake' && !(await isThere()))
    throw new AppError('not_found', `no lake found in ${config.storage.lake ?? config.dataDir}`, {
      hint: "Run 'tributary start' to create it.",
    });
  return { config, paths, clock: createClock(config.clockOffsetSeconds) };
}

/**
 * Treatment of a missing data folder.
 *
 * - `existing`: rejects it, so that a mistyped path never looks like an empty service. `lake`: also a missing lake.
 * - `named`: creates it if `--data` or TRIBUTARY_DATA_DIR names it: the default `./data` in a wrong directory would start
 * a second service.
 * - `any`: creates it.
 * - `moved`: as `existing`, but accepts each format: a repeated move finds its data marked as moved.
 */
type DataFolderUse = 'existing' | 'lake' | 'named' | 'any' | 'moved';

function findNames(dir: string): readonly string[] | undefined {
  try {
    return findNamesSync(dir);
  } catch (error) {
    if (isSystemError(error, 'ENOTDIR'))
      throw new AppError('usage', `${dir} is not a folder`, { hint: 'Pass the data folder with --data.' });
    throw new AppError('disk', `cannot read the data folder ${dir}`, {
      cause: error,
      hint: 'Run the command as the user of the service.',
      retryable: false,
    });
  }
}

/** Rejects a missing data folder, and creates nothing. Errors: `not_found`; `usage` for a file; `disk`. */
function assertDataFolder(dataDir: string, use: DataFolderUse, isNamed: boolean): void {
  const names = findNames(dataDir);
  if (use === 'named') {
    if (names !== undefined || isNamed) return;
    throw new AppError('not_found', `data folder ${dataDir} does not exist`, {
      hint: 'Run the command where the service runs, or pass --data: a named folder is created.',
    });
  }
  const ours = Object.values(dataPaths(dataDir)).map((file) => file.slice(dataDir.length).replaceAll('/', ''));
  if (names?.some((name) => ours.includes(name)) === true) return;
  const what =
    names === undefined
      ? `data folder ${dataDir} does not exist`
      : `${dataDir} is not a data folder: it has no files of tributary`;
  throw new AppError('not_found', what, {
    hint: "Pass --data or set TRIBUTARY_DATA_DIR. 'tributary start' creates a new data folder.",
  });
}

/** Returns the folder for the spill folders of queries. */
export const queryScratchDir = (spool: string): string => path.join(spool, 'query');

/**
 * Sets the folder of the operator's datasets, by the data folder of the words or the environment. Called before the
 * words are parsed, since commands load the datasets.
 */
export function useDatasetsOf(words: readonly string[], environment: Environment): void {
  const index = words.findIndex((word) => word === '--data' || word.startsWith('--data='));
  const [, named = words[index + 1]] = /^--data=(.*)$/s.exec(words[index] ?? '') ?? [];
  const dataDir = (index === -1 ? undefined : named) ?? (environment['TRIBUTARY_DATA_DIR'] || 'data');
  useDatasetsFolder(dataPaths(dataDir).datasets);
}

/** The option of a command that asks before it removes something. */
export const yesOption = { yes: flag('skip the confirmation prompt') } as const;

/** Asks for confirmation at a terminal; a script is not asked. Error: `usage` unless confirmed. */
export async function assertConfirmed(
  question: string,
  isConfirmed: boolean,
  { confirm }: Pick<CommandContext, 'confirm'>,
): Promise<void> {
  if (isConfirmed || confirm === undefined || (await confirm(question))) return;
  throw new AppError('usage', 'nothing was changed', { hint: 'Answer yes, or pass --yes.' });
}
