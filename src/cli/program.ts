import { Argument, Command as Parser, CommanderError, Option, type Help } from 'commander';
import { AppError, describeError, isAppError, isDiskFull } from '../runtime/errors.ts';
import { findBuild } from '../runtime/files/package-files.ts';
import { createHumanOutput } from './human-output.ts';
import { commonOptions, type Command, type CommandContext, type OptionSpecs, type CommandSpec } from './command.ts';
import { replaceFormerNames } from './former-names.ts';
import { failUsage, type OptionSpec } from './option-specs.ts';

interface Call {
  readonly words: readonly string[];
  readonly context: CommandContext;
  exitCode: number;
}

/** Returns the option of a name: `--max-exports` for `maxExports`. */
export function flagOf(name: string): string {
  return `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

function optionsOf({ options = {}, isWithoutData }: CommandSpec): OptionSpecs {
  const { data, json } = commonOptions;
  return { ...options, ...(isWithoutData === true ? {} : { data }), json, ...options };
}

const show = (text: string, isBare: boolean, isMany = false): string =>
  `${isBare ? text : `[${text}]`}${isMany ? '...' : ''}`;

/** Renders the usage, one line per form: `tributary app add ID --platform P [--title T] [--data DIR]`. */
export function usagesOf(commandSpec: CommandSpec, path: string): readonly string[] {
  if (commandSpec.usage !== undefined) return commandSpec.usage.map((usage) => `${path} ${usage}`);
  const words = Object.entries(commandSpec.arguments ?? {}).map(([name, { isOptional, isRepeatable }]) =>
    show(`${name}${isRepeatable === true ? '...' : ''}`, isOptional !== true),
  );
  // Every command has --json; its own help shows it.
  const { json: _, ...options } = optionsOf(commandSpec);
  const optionTexts = Object.entries(options)
    .filter(([, { isHidden }]) => isHidden !== true)
    .toSorted(([, a], [, b]) => Number(b.isRequired ?? false) - Number(a.isRequired ?? false))
    .map(([name, { placeholder: value, letter, isRequired, isRepeatable }]) => {
      const flag = letter === undefined ? flagOf(name) : `-${letter}`;
      return show(value === undefined ? flag : `${flag} ${value}`, isRequired === true, isRepeatable);
    });
  return [[path, ...words, ...optionTexts].join(' ')];
}

const exitCodes: Readonly<Record<number, string>> = {
  0: 'success',
  1: 'failure: standard error has the reason and what to do',
};

function renderEnd({ examples = [], exitCodes: own = {} }: CommandSpec): string {
  const shown = examples.length === 0 ? '' : `\nExamples:\n${examples.map((line) => `  tributary ${line}\n`).join('')}`;
  const codes = Object.entries({ ...exitCodes, ...own }).map(([code, meaning]) => {
    const common = exitCodes[Number(code)];
    return `  ${code}  ${meaning}${common === undefined || common === meaning ? '' : `; or: ${common}`}\n`;
  });
  return `${shown}\nExit codes:\n${codes.join('')}`.trimEnd();
}

/** Shows names in capitals, without the parser's brackets. */
const helpStyle: Partial<Help> = {
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

const printBy = (write: (line: string) => void) => (text: string) => write(text.replace(/\n+$/, ''));

/** Creates a parser that throws its help, its version and its errors. */
function createParser({ name, summary = '', details = [] }: Omit<Command, 'run' | 'verbs'>, { context }: Call): Parser {
  const sentence = summary === '' ? [] : [`${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`];
  return new Parser(name)
    .summary(summary)
    .description([...sentence, ...details].join('\n'))
    .helpOption('-h, --help', 'show this help')
    .helpCommand(false)
    .configureHelp(helpStyle)
    .configureOutput({
      writeOut: printBy(context.print),
      writeErr: printBy(context.printMessage),
      outputError: () => undefined,
    })
    .exitOverride();
}

function addVersion(parser: Parser): Parser {
  const { version } = findBuild();
  return parser.version(version, '-V, --version', 'print the version');
}

/** Creates the parser of an option's text; `previous` is its value so far. Error: `usage`. */
function parseOption(parser: Parser, option: Option, { parse, isRepeatable }: OptionSpec<unknown>, { words }: Call) {
  const flag = String(option.long);
  return (text: string, previous: unknown): unknown => {
    const isGiven = parser.getOptionValueSource(option.attributeName()) === 'cli';
    if (isGiven && isRepeatable !== true) failUsage(`${flag} is given twice; it takes one value`);
    // An unset variable of a script (`--data "$DATA"`) must not become the default.
    if (text === '') failUsage(`${flag} has an empty value`);
    // A value may begin with a dash: the prefix of a token, the id of a client.
    const known = [...parser.options.flatMap(({ long, short }) => [long, short]), '--help', '-h'];
    if (known.includes(text.replace(/=.*/s, '')) && !words.includes(`${flag}=${text}`))
      failUsage(`${flag} has no value: ${text} is an option`);
    const value = parse?.(text, flag);
    return isRepeatable === true && isGiven ? [previous, value].flat() : value;
  };
}

function addOption(parser: Parser, name: string, optionSpec: OptionSpec<unknown>, call: Call): Option {
  const { description, placeholder, letter, choices, default: fallback, isHidden = false } = optionSpec;
  const choiceList = choices === undefined || placeholder === choices.join('|') ? '' : `: ${choices.join(', ')}`;
  const isShown = placeholder !== undefined && (typeof fallback === 'string' || typeof fallback === 'number');
  const option = new Option(
    `${letter === undefined ? '' : `-${letter}, `}${flagOf(name)}${placeholder === undefined ? '' : ` <${placeholder}>`}`,
    `${description}${choiceList}${isShown ? ` (${fallback})` : ''}`,
  ).hideHelp(isHidden);
  if (placeholder !== undefined) option.argParser(parseOption(parser, option, optionSpec, call));
  parser.addOption(option);
  return option;
}

function addWord(
  parser: Parser,
  name: string,
  { description, parse, choices, isRepeatable, isOptional }: OptionSpec<unknown>,
): void {
  const shownName = isRepeatable === true ? `${name}...` : name;
  const choiceList = choices === undefined ? '' : `: ${choices.join(', ')}`;
  const argument = new Argument(
    isOptional === true ? `[${shownName}]` : `<${shownName}>`,
    `${description}${choiceList}`,
  );
  argument.argParser((text: string, previous: unknown) => {
    if (text === '') failUsage(`${name} is empty`);
    const value = parse?.(text, name);
    return isRepeatable === true ? [previous ?? [], value].flat() : value;
  });
  parser.addArgument(argument);
}

/** Collects the values by the names of the declaration. */
function collect(
  parser: Parser,
  { arguments: words = {} }: CommandSpec,
  options: ReadonlyMap<string, Option>,
  declared: OptionSpecs,
) {
  const values: Record<string, unknown> = {};
  Object.entries(words).forEach(([name, { default: fallback }], index) => {
    values[name] = parser.processedArgs[index] ?? fallback;
  });
  for (const [name, option] of options) {
    const key = option.attributeName();
    const isGiven = parser.getOptionValueSource(key) === 'cli';
    const isFlag = declared[name]?.placeholder === undefined;
    // Checked here: the parser would report a missing option before a misspelled one.
    if (!isGiven && declared[name]?.isRequired === true) failUsage(`${String(option.long)} is missing`);
    values[name] = isGiven ? isFlag || parser.getOptionValue(key) : declared[name]?.default;
  }
  return values as Parameters<CommandSpec['run']>[0];
}

/** Runs a verb, and formats its output for a terminal unless `--json` is given. Error: `disk` for a full disk. */
async function runVerb(
  commandSpec: CommandSpec,
  values: Parameters<CommandSpec['run']>[0],
  context: CommandContext,
): Promise<number> {
  const isShown = context.screen !== undefined && !values.json;
  const humanOutput = isShown
    ? createHumanOutput(context, context.screen.columns, commandSpec.isList === true)
    : undefined;
  const used = humanOutput?.context ?? context;
  let isDone = false;
  try {
    const result = await commandSpec.run(values, used);
    const exitCode = typeof result === 'number' ? result : 0;
    if (typeof result === 'object') for (const one of Array.isArray(result) ? result : [result]) used.printResult(one);
    isDone = exitCode === 0;
    return exitCode;
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    throw new AppError('disk', describeError(error), { hint: 'Free space there, then repeat the command.' });
  } finally {
    humanOutput?.end(isDone);
  }
}

const usageSeparator = '\n       ';

function toVerbParser(commandSpec: CommandSpec, path: string, call: Call): Parser {
  const parser = createParser(commandSpec, call).usage(usagesOf(commandSpec, path).join(usageSeparator));
  Object.entries(commandSpec.arguments ?? {}).forEach(([word, value]) => addWord(parser, word, value));
  const declared = optionsOf(commandSpec);
  const options = new Map(
    Object.entries(declared).map(([name, value]) => [name, addOption(parser, name, value, call)] as const),
  );
  return addVersion(parser)
    .addHelpText('after', renderEnd(commandSpec))
    .action(async () => {
      call.exitCode = await runVerb(commandSpec, collect(parser, commandSpec, options, declared), {
        ...call.context,
        command: path.replace(/^tributary /, ''),
      });
    });
}

function toParser(command: Command, call: Call): Parser {
  const path = `tributary ${command.name}`;
  if (!('commands' in command)) return toVerbParser(command, path, call);
  const usages =
    command.usage?.map((usage) => `${path} ${usage}`) ??
    command.commands.flatMap((commandSpec) =>
      commandSpec.summary === undefined ? [] : usagesOf(commandSpec, `${path} ${commandSpec.name}`),
    );
  const parser = createParser(command, call).usage(usages.join(usageSeparator)).enablePositionalOptions();
  for (const commandSpec of command.commands)
    parser.addCommand(toVerbParser(commandSpec, `${path} ${commandSpec.name}`, call), {
      hidden: commandSpec.summary === undefined,
    });
  return addVersion(parser);
}

function findParser(
  parser: Parser,
  [word, ...words]: readonly string[],
  path = parser.name(),
): { readonly parser: Parser; readonly path: string } {
  const found = parser.commands.find((command) => command.name() === word);
  return found === undefined ? { parser, path } : findParser(found, words, `${path} ${word}`);
}

/** Turns a parser's error into one sentence with the usage. */
function toUsageError(error: unknown, program: Parser, words: readonly string[]): unknown {
  const { parser, path } = findParser(program, words);
  const hint =
    parser.commands.length > 0
      ? `Run '${path} --help' for a list of commands.`
      : `Usage: ${parser.usage().split(usageSeparator).join(', ')}`;
  if (isAppError(error, 'usage') && error.hint === undefined && parser !== program)
    return new AppError('usage', error.message, { hint, cause: error.cause });
  if (!(error instanceof CommanderError)) return error;
  const message = error.message
    .replace(/^error: /, '')
    .replace(/\n\(Did you mean (.*?)\?\)$/s, ' (did you mean $1?)')
    .replace(/^option '(--[\w-]+) <.+?>' argument missing/, '$1 has no value')
    .replace(/^missing required argument '(.+)'/, '$1 is missing');
  return new AppError('usage', message, { hint });
}

/** Joins the two words of a verb such as `token add`, which is one word for the parser. */
function joinVerb(command: Command | undefined, words: readonly string[]): readonly string[] {
  const [name = '', first = '', second = '', ...rest] = words;
  const joined = `${first} ${second}`;
  const isVerb =
    command !== undefined &&
    'commands' in command &&
    command.commands.some((commandSpec) => commandSpec.name === joined);
  return isVerb ? [name, joined, ...rest] : words;
}

/**
 * Runs the command that `args` names; handles `help`, `--help` and `--version`. Returns the exit code. Errors: `usage`,
 * with the usage as its hint; those of the command.
 */
export async function runProgram(
  commands: readonly Command[],
  args: readonly string[],
  context: CommandContext,
): Promise<number> {
  const command = commands.find(({ name }) => name === args[0]);
  const words = joinVerb(command, replaceFormerNames(args, context));
  const call: Call = { words, context, exitCode: 0 };
  const details = ['Events in over HTTP, an open Parquet lake, raw exports out.'];
  const program = addVersion(createParser({ name: 'tributary', details }, call))
    .usage('tributary COMMAND ...')
    .enablePositionalOptions();
  for (const each of commands) program.addCommand(toParser(each, call), { hidden: each.summary === undefined });
  try {
    // Nothing behind an unknown command is parsed, not even `--help`.
    const isRead = words[0] === undefined || command !== undefined || words[0].startsWith('-');
    await program.parseAsync(isRead ? [...words] : words.slice(0, 1), { from: 'user' });
  } catch (thrown) {
    if (thrown instanceof CommanderError && /^commander\.(help|helpDisplayed|version)$/.test(thrown.code))
      return thrown.exitCode;
    const error = toUsageError(thrown, program, words);
    if (command === undefined || !('recover' in command) || command.recover === undefined) throw error;
    return command.recover(error, words, context);
  }
  return call.exitCode;
}
