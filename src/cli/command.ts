/**
 * The command line: one verb a file.
 *
 * In: words and environment, from src/main.ts. Out: JSON on standard output, a line for a person on standard error, an
 * exit code.
 * Invariant: a command opens, calls and answers; what it does is in a store or a stage. A data folder that is not
 * there, or is of a newer version, is refused (resolveConfig).
 * Crash: as the stage that it calls says; a command that was killed can be repeated.
 */
import { parseArgs, type ParseArgsConfig } from 'node:util';
import { parseConfig, type Config, type Environment } from '../config.ts';
import { assertDataFormat } from '../runtime/files/data-format.ts';
import { AppError, describeError } from '../runtime/errors.ts';
import { assertDataFolder, type DataFolderUse } from './data-folder.ts';

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
  /** Reads standard input; absent where there is none. */
  readonly input?: () => AsyncIterable<Uint8Array>;
  /** Standard error is a terminal: a person sees how far a command is. */
  readonly isTerminal?: boolean;
  /** Asks a person at the terminal; absent where there is none. */
  readonly confirm?: (question: string) => Promise<boolean>;
  /** Aborted by the first SIGTERM or SIGINT. */
  readonly stop: AbortSignal;
  /** Aborted by the second. */
  readonly force: AbortSignal;
  /** Aborted when something was written that nobody reads any more: the pipe of standard output is closed. */
  readonly unread?: AbortSignal;
}

/** One verb of the command line. `run` returns the exit code; nothing means 0. */
export interface Command {
  readonly name: string;
  readonly usage: string;
  readonly summary: string;
  /** What its words mean, a line each; shown by its own help only. */
  readonly details?: readonly string[];
  run(args: readonly string[], context: CommandContext): Promise<number | void>;
}

type Options = NonNullable<ParseArgsConfig['options']>;

/** Options every command takes. */
const commonOptions = { data: { type: 'string' } } as const satisfies Options;

/**
 * Joins an option and its value where the value begins with a dash and is no option of the command: a token's prefix
 * and a client's id may.
 */
function joinDashedValues(args: readonly string[], options: Options): string[] {
  const joined: string[] = [];
  const end = args.indexOf('--');
  args.forEach((word, index) => {
    const before = joined.at(-1);
    const isValue =
      /^-./.test(word) &&
      !Object.hasOwn(options, word.replace(/^--|=.*$/gs, '')) &&
      (end === -1 || index < end) &&
      before?.startsWith('--') === true &&
      options[before.slice(2)]?.type === 'string';
    if (isValue) joined[joined.length - 1] = `${before}=${word}`;
    else joined.push(word);
  });
  return joined;
}

/**
 * Refuses an option that is given two values and takes one: the parser passes over all of them but the last. `tokens` and
 * `options` are the parser's.
 */
export function assertGivenOnce(
  tokens: readonly { readonly kind: string; readonly name?: string; readonly value?: string | undefined }[],
  options: Options = {},
): void {
  const given = new Set<string>();
  for (const { kind, name = '', value } of tokens) {
    if (kind !== 'option' || value === undefined || options[name]?.multiple === true) continue;
    if (given.has(name)) throw new Error(`--${name} is given twice, and takes one value`);
    given.add(name);
  }
}

/**
 * Parses a command's words: `--name value`, `--name=value`, flags, and exactly the positional words named in `words`.
 * Anything else is a `usage` error that shows the command's usage, and so is an option with a value that is given twice.
 * `--data` is in every command.
 */
export function parseWords<O extends Options>(
  args: readonly string[],
  words: readonly string[],
  options: O,
  usage: string,
) {
  try {
    const known = { ...commonOptions, ...options };
    const parsed = parseArgs({
      args: joinDashedValues(args, known),
      options: known,
      allowPositionals: true,
      strict: true,
      tokens: true,
    });
    assertGivenOnce(parsed.tokens, known);
    if (parsed.positionals.length !== words.length) {
      throw new Error(
        words.length === 0 ? `unexpected word '${parsed.positionals[0]}'` : `expected ${words.join(' ')}`,
      );
    }
    // An unset variable of a script (`--data "$DATA"`) must not fall back to a default.
    const emptyOption = Object.entries(parsed.values).find(([, value]) => value === '')?.[0];
    if (emptyOption !== undefined) throw new Error(`--${emptyOption} has an empty value`);
    const emptyWord = words.find((_, index) => parsed.positionals[index] === '');
    if (emptyWord !== undefined) throw new Error(`${emptyWord} is empty`);
    return parsed;
  } catch (error) {
    throw new AppError('usage', describeError(error), { hint: `Usage: ${usage}` });
  }
}

/** Parses a positive integer of the command line. */
export function parseId(text: string | undefined, what: string): number {
  const value = text !== undefined && /^[1-9]\d{0,15}$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(value))
    throw new AppError('usage', `${what} must be a positive integer, not '${text ?? ''}'`);
  return value;
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
