import { describe, expect, it } from 'vitest';
import type { CommandContext, CommandSpec } from '../../../src/cli/command.ts';
import { runProgram } from '../../../src/cli/program.ts';
import { commandTable, loadDeclaredCommands } from '../../helpers/declared-commands.ts';

const commands = await loadDeclaredCommands();
const verbs = commands.flatMap((command) =>
  'commands' in command
    ? command.commands.map((commandSpec) => ({ name: `${command.name} ${commandSpec.name}`, verb: commandSpec }))
    : [{ name: command.name, verb: command }],
);

const silent = (): void => undefined;

/** Parses words as the program does; returns the verb that would run. */
async function parse(words: readonly string[]): Promise<string> {
  let called = '';
  const idle = (commandSpec: CommandSpec, name: string): CommandSpec => ({
    ...commandSpec,
    run: () => {
      called = name;
      return Promise.resolve();
    },
  });
  const named = commands.filter(({ name }) => name === words[0]);
  const parsed = named.map((command) =>
    'commands' in command
      ? {
          ...command,
          commands: command.commands.map((commandSpec) => idle(commandSpec, `${command.name} ${commandSpec.name}`)),
        }
      : idle(command, command.name),
  );
  const never = new AbortController().signal;
  const context: CommandContext = {
    environment: {},
    entry: '',
    printResult: silent,
    print: silent,
    printMessage: silent,
    stop: never,
    force: never,
  };
  await runProgram(parsed, words, context);
  return called;
}

/** Splits a command line into words, which may be quoted; a pipe or a redirection ends them. */
const split = (line: string): string[] =>
  [...line.split(/ [|<>] /)[0]!.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(([, a, b, c]) => a ?? b ?? c ?? '');

describe('what the commands declare', () => {
  it('The names of the commands are those by which they are loaded', () => {
    expect(commands.length).toBeGreaterThan(20);
    expect(commands.map(({ name }) => name)).toEqual(commandTable.map(({ name }) => name));
    expect(new Set(verbs.map(({ name }) => name)).size).toBe(verbs.length);
  });

  it('Every command that the help lists has an example, and each is parsed as a call of that command', async () => {
    for (const { name, verb } of verbs) {
      if (verb.summary === undefined) continue;
      expect(verb.examples?.length, name).toBeGreaterThan(0);
      for (const example of verb.examples ?? []) expect(await parse(split(example)), example).toBe(name);
    }
  });

  it('The texts of a command and its options have the form of the lists of the help', () => {
    for (const { name, verb } of verbs) {
      const { summary, arguments: words = {}, options = {}, details = [] } = verb;
      const abouts = [...Object.values(words), ...Object.values(options)].map(({ description }) => description);
      for (const about of [...(summary === undefined ? [] : [summary]), ...abouts])
        expect(about, name).toMatch(/^[^\s.].*[^\s.]$/);
      for (const sentence of details) expect(sentence, name).toMatch(/^\S.*\.$/);
    }
  });
});
