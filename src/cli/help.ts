import type { Command as Parser, Help, Option } from 'commander';
import { commonOptions, type Declarations, type Verb } from './command.ts';
import type { Declared } from './words.ts';

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
