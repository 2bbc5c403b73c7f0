import { Command as Parser, type Help, Option, Argument, CommanderError } from 'commander';
import {
  commonOptions,
  type Declarations,
  type Verb,
  type Command,
  type CommandContext,
  type Group,
} from './command.ts';
import { type Declared, refuse } from './words.ts';
import { AppError, describeError, isAppError, isDiskFull } from '../runtime/errors.ts';
import { readPackageJson } from '../runtime/files/package-files.ts';
import { showAnswers } from './answers.ts';

/** `maxExports` as it is written on the command line: `--max-exports`. */
export function flagOf(name: string): string {
  return `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** The options of a verb: its own, and those of every command. */
export function optionsOf({ options = {}, isWithoutData }: Verb): Declarations {
  const { data, json } = commonOptions;
  return { ...options, ...(isWithoutData === true ? {} : { data }), json, ...options };
}

function showOption([name, { shown, letter, isRequired, isMany }]: [string, Declared<unknown>]): string {
  const option = `${letter === undefined ? flagOf(name) : `-${letter}`}${shown === undefined ? '' : ` ${shown}`}`;
  return `${isRequired === true ? option : `[${option}]`}${isMany === true ? '...' : ''}`;
}

function showWord([name, { isOptional, isMany }]: [string, Declared<unknown>]): string {
  const word = `${name}${isMany === true ? '...' : ''}`;
  return isOptional === true ? `[${word}]` : word;
}

/** How a verb is called, behind its name: `ID --platform P [--title T] [--data DIR]`. */
export function usagesOf(verb: Verb): readonly string[] {
  if (verb.usage !== undefined) return verb.usage;
  // Everybody has --json, and its own help says so.
  const { json: _, ...options } = optionsOf(verb);
  const shown = Object.entries(options).filter(([, { isHidden }]) => isHidden !== true);
  const [must, may] = [true, false].map((wanted) =>
    shown.filter(([, { isRequired = false }]) => isRequired === wanted).map(showOption),
  );
  return [[...Object.entries(verb.words ?? {}).map(showWord), ...(must ?? []), ...(may ?? [])].join(' ')];
}

/** The whole lines of a usage: `tributary app list [--removed] [--data DIR]`. */
export function usageLines(parser: Parser, usages: readonly string[]): string[] {
  return usages.map((usage) => `${pathOf(parser)} ${usage}`.trimEnd());
}

/** `tributary app add`. */
export function pathOf(parser: Parser): string {
  return parser.parent === null ? parser.name() : `${pathOf(parser.parent)} ${parser.name()}`;
}

const exitCodes: Readonly<Record<number, string>> = {
  0: 'done',
  1: 'refused or failed: one sentence on standard error says why, and what to do',
};

/** Examples and exit codes, below the lists of the help. */
export function renderEnd({ examples = [], exitCodes: own = {} }: Verb): string {
  const shown = examples.length === 0 ? '' : `\nExamples:\n${examples.map((line) => `  tributary ${line}\n`).join('')}`;
  const codes = Object.entries({ ...exitCodes, ...own }).map(([code, meaning]) => {
    const common = exitCodes[Number(code)];
    return `  ${code}  ${meaning}${common === undefined || common === meaning ? '' : `; or: ${common}`}\n`;
  });
  return `${shown}\nExit codes:\n${codes.join('')}`.trimEnd();
}

/** How the parser shows what it knows: names in capitals as they are, without brackets of its own. */
export const helpStyle: Partial<Help> = {
  optionTerm: ({ flags }: Option) => flags.replaceAll(/[<>]/g, ''),
  subcommandTerm: (parser: Parser) => {
    const words = parser.registeredArguments.map((argument) => {
      const name = `${argument.name()}${argument.variadic ? '...' : ''}`;
      return argument.required ? name : `[${name}]`;
    });
    return [parser.name(), ...words].join(' ');
  },
  commandUsage: (parser: Parser) => parser.usage(),
};

/** One call of the program: its words, and the exit code once a verb has run. */
interface Call {
  readonly words: readonly string[];
  readonly context: CommandContext;
  exitCode: number;
}

/** Writes a text of the parser's as lines of the program. */
const printBy = (write: (line: string) => void) => (text: string) => write(text.replace(/\n+$/, ''));

/** A parser that throws what it has to say: help and the version when they were printed, and what is wrong. */
function createParser(name: string, { context }: Call): Parser {
  return new Parser(name)
    .helpOption('-h, --help', 'show this help')
    .helpCommand(false)
    .configureHelp(helpStyle)
    .configureOutput({
      writeOut: printBy(context.print),
      writeErr: printBy(context.note),
      outputError: () => undefined,
    })
    .exitOverride();
}

/** Gives a parser the option that every one has, behind those of its own. */
function addVersion(parser: Parser): Parser {
  const { version } = readPackageJson('package.json') as { version: string };
  return parser.version(version, '-V, --version', 'print the version');
}

/** Parses the text of an option; `previous` is what it was given before. Error: `usage`. */
function parseOption(parser: Parser, option: Option, { parse, isMany }: Declared<unknown>, { words }: Call) {
  const { long } = option;
  const flag = String(long);
  return (text: string, previous: unknown): unknown => {
    const isGiven = parser.getOptionValueSource(option.attributeName()) === 'cli';
    if (isGiven && isMany !== true) refuse(`${flag} is given twice, and takes one value`);
    // An unset variable of a script (`--data "$DATA"`) must not fall back to a default.
    if (text === '') refuse(`${flag} has an empty value`);
    // A value may begin with a dash, as a token's prefix and a client's id may.
    const known = [...parser.options.flatMap(({ long: other, short }) => [other, short]), '--help', '-h'];
    if (known.includes(text.replace(/=.*/s, '')) && !words.includes(`${flag}=${text}`))
      refuse(`${flag} has no value: ${text} is an option`);
    const value = parse?.(text, flag);
    return isMany === true && isGiven ? [...(previous as unknown[]), ...(value as unknown[])] : value;
  };
}

function addOption(parser: Parser, name: string, declared: Declared<unknown>, call: Call): Option {
  const { about, shown, letter, choices, fallback, isHidden = false } = declared;
  // What is shown as its choices says them already.
  const taken = choices === undefined || shown === choices.join('|') ? '' : `: ${choices.join(', ')}`;
  const isShown = shown !== undefined && (typeof fallback === 'string' || typeof fallback === 'number');
  const option = new Option(
    `${letter === undefined ? '' : `-${letter}, `}${flagOf(name)}${shown === undefined ? '' : ` <${shown}>`}`,
    `${about}${taken}${isShown ? ` (${fallback})` : ''}`,
  ).hideHelp(isHidden);
  if (shown !== undefined) option.argParser(parseOption(parser, option, declared, call));
  parser.addOption(option);
  return option;
}

function addWord(parser: Parser, name: string, { about, parse, choices, isMany, isOptional }: Declared<unknown>): void {
  const shown = isMany === true ? `${name}...` : name;
  const taken = choices === undefined ? '' : `: ${choices.join(', ')}`;
  const argument = new Argument(isOptional === true ? `[${shown}]` : `<${shown}>`, `${about}${taken}`);
  argument.argParser((text: string, previous: unknown) => {
    if (text === '') refuse(`${name} is empty`);
    const value = parse?.(text, name);
    return isMany === true ? [...((previous as unknown[] | undefined) ?? []), ...(value as unknown[])] : value;
  });
  parser.addArgument(argument);
}

/** What was given, by the names of the declaration. */
function collect(parser: Parser, words: Declarations, options: ReadonlyMap<string, Option>, declared: Declarations) {
  const given: Record<string, unknown> = {};
  Object.entries(words).forEach(([name, { fallback }], index) => {
    given[name] = (parser.processedArgs as unknown[])[index] ?? fallback;
  });
  for (const [name, option] of options) {
    const key = option.attributeName();
    const isGiven = parser.getOptionValueSource(key) === 'cli';
    const isFlag = declared[name]?.shown === undefined;
    // Not by the parser, which would pass over an option that is written wrong.
    if (!isGiven && declared[name]?.isRequired === true) refuse(`${String(option.long)} is missing`);
    given[name] = isGiven ? isFlag || (parser.getOptionValue(key) as unknown) : declared[name]?.fallback;
  }
  return given;
}

function toParser(verb: Verb, call: Call): Parser {
  const { name, summary = '', details = [], words = {} } = verb;
  const parser = createParser(name, call).summary(summary);
  const declared = optionsOf(verb);
  Object.entries(words).forEach(([word, value]) => addWord(parser, word, value));
  const options = new Map(
    Object.entries(declared).map(([option, value]) => [option, addOption(parser, option, value, call)] as const),
  );
  return addVersion(parser)
    .description(describe({ summary, details }))
    .addHelpText('after', renderEnd(verb))
    .action(async () => {
      const given = collect(parser, words, options, declared);
      call.exitCode = await runVerb(verb, given as Parameters<Verb['run']>[0], call.context);
    });
}

/** Runs a verb; on a terminal its answers are shown for a person, unless they are to be JSON. Error: `disk` for a full one. */
async function runVerb(verb: Verb, given: Parameters<Verb['run']>[0], context: CommandContext): Promise<number> {
  const isShown = context.screen !== undefined && !given.json;
  const shown = isShown ? showAnswers(context, context.screen.columns, verb.isList === true) : undefined;
  let isDone = false;
  try {
    const exitCode = (await verb.run(given, shown?.context ?? context)) ?? 0;
    isDone = exitCode === 0;
    return exitCode;
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    throw new AppError('disk', describeError(error), { hint: 'Free space there, then repeat the command.' });
  } finally {
    shown?.end(isDone);
  }
}

function describe({ summary = '', details = [] }: Pick<Command, 'summary' | 'details'>): string {
  const sentence = summary === '' ? [] : [`${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`];
  return [...sentence, ...details].join('\n');
}

/** Between the lines of a usage, below each other. */
const usageSeparator = '\n       ';

/** Makes the usage of a parser and of those below it, which name the whole way to them. */
function addUsages(parser: Parser, command: Command): string[] {
  const below =
    'verbs' in command
      ? command.verbs.flatMap((verb, index) => {
          const own = addUsages(parser.commands[index] as Parser, verb);
          return verb.summary === undefined ? [] : own;
        })
      : usageLines(parser, usagesOf(command));
  const lines = command.usage === undefined ? below : usageLines(parser, command.usage);
  parser.usage(lines.join(usageSeparator));
  return lines;
}

function toGroupParser(group: Group, call: Call): Parser {
  const parser = createParser(group.name, call)
    .summary(group.summary ?? '')
    .enablePositionalOptions();
  for (const verb of group.verbs) parser.addCommand(toParser(verb, call), { hidden: verb.summary === undefined });
  return addVersion(parser).description(describe(group));
}

/** The parser that the words lead to: of a verb, of a group, or of the program. */
function findParser(parser: Parser, [word, ...words]: readonly string[]): Parser {
  const found = parser.commands.find((command) => command.name() === word);
  return found === undefined ? parser : findParser(found, words);
}

/** Makes one sentence of what the parser has found wrong, and the usage of what was called. */
function describeUsage(message: string): string {
  return message
    .replace(/^error: /, '')
    .replace(/^unknown command/, 'there is no command')
    .replace(/\n\(Did you mean (.*?)\?\)$/s, ' (did you mean $1?)')
    .replace(/^option '(--[\w-]+) <.+?>' argument missing/, '$1 has no value')
    .replace(/^missing required argument '(.+)'/, '$1 is missing');
}

function toUsageError(error: unknown, program: Parser, words: readonly string[]): unknown {
  const parser = findParser(program, words);
  const usage =
    parser.commands.length > 0
      ? `'${pathOf(parser)} --help' lists what there is.`
      : `Usage: ${parser.usage().split(usageSeparator).join(', ')}`;
  if (error instanceof CommanderError) return new AppError('usage', describeUsage(error.message), { hint: usage });
  return isAppError(error, 'usage') && error.hint === undefined && parser !== program
    ? new AppError('usage', error.message, { hint: usage, cause: error.cause })
    : error;
}

/** A parser of the program with these commands. */
function createProgram(commands: readonly Command[], call: Call): Parser {
  const program = addVersion(createParser('tributary', call))
    .usage('tributary COMMAND ...')
    .description('Events in over HTTP, an open Parquet lake, raw exports out.')
    .enablePositionalOptions();
  for (const command of commands) {
    const parser = 'verbs' in command ? toGroupParser(command, call) : toParser(command, call);
    program.addCommand(parser, { hidden: command.summary === undefined });
    addUsages(parser, command);
  }
  return program;
}

/**
 * Runs the command that `words` call, of those given: `tributary help`, `--help` and `--version` too. Returns the exit
 * code. Errors: `usage`, with the usage of what was called; those of the command.
 */
export async function runProgram(
  commands: readonly Command[],
  words: readonly string[],
  context: CommandContext,
): Promise<number> {
  const call: Call = { words, context, exitCode: 0 };
  const program = createProgram(commands, call);
  try {
    // What follows a word that is no command means nothing, `--help` neither.
    const isCommand = [undefined, ...commands.map(({ name }) => name)].includes(words[0]);
    const parsed = isCommand || words[0]?.startsWith('-') === true ? words : words.slice(0, 1);
    await program.parseAsync([...parsed], { from: 'user' });
  } catch (thrown) {
    // Help and the version are printed.
    if (thrown instanceof CommanderError && /^commander\.(help|helpDisplayed|version)$/.test(thrown.code))
      return thrown.exitCode;
    const error = toUsageError(thrown, program, words);
    const command = commands.find(({ name }) => name === words[0]);
    if (command === undefined || !('recover' in command) || command.recover === undefined) throw error;
    return command.recover(error, words, context);
  }
  return call.exitCode;
}
