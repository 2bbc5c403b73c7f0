import { describe, expect, it } from 'vitest';
import { defineCommand, type Command, type CommandContext } from '../../../src/cli/command.ts';
import { runProgram } from '../../../src/cli/program.ts';
import { flag, many, oneOf, optional, positive, required, text, withDefault } from '../../../src/cli/option-specs.ts';

const never = new AbortController().signal;

interface Ran {
  readonly code: number;
  /** Values that the command received. */
  readonly given: unknown;
  readonly printed: string;
  readonly noted: string;
}

const show = defineCommand({
  name: 'show',
  summary: 'show something',
  arguments: { ID: positive('what'), REST: optional(many(text('more'))) },
  options: {
    revoke: text('a prefix', 'PREFIX'),
    user: many(text('users')),
    yes: flag('do it'),
    noExport: flag('without'),
    maxRows: withDefault(positive('rows', 'K', 100), 10),
    kind: oneOf(['one', 'two'], 'which'),
  },
  examples: ['x show 7 --yes'],
  run: () => Promise.resolve(),
});
const need = defineCommand({
  name: 'need',
  summary: 'need something',
  options: { account: required(positive('whose')) },
  exitCodes: { 1: 'nothing was there' },
  run: () => Promise.resolve(3),
});

/** Runs the words in a program of one group, and returns the values of its verb. */
async function run(...words: readonly string[]): Promise<Ran> {
  let given: unknown;
  const [printed, noted]: [string[], string[]] = [[], []];
  const kept: Command = {
    name: 'x',
    summary: 'try it',
    commands: [show, need].map((each) => ({
      ...each,
      run: (values: never, context: CommandContext) => {
        given = values;
        return each.run(values, context);
      },
    })),
  };
  const context: CommandContext = {
    environment: {},
    entry: '',
    printResult: () => undefined,
    print: (line) => void printed.push(line),
    printMessage: (line) => void noted.push(line),
    stop: never,
    force: never,
  };
  const code = await runProgram([kept], words, context);
  return { code, given, printed: printed.join('\n'), noted: noted.join('\n') };
}

describe('the words of a command', () => {
  it('The words of a command arrive with the types that it has declared', async () => {
    const nothing = {
      json: false,
      data: undefined,
      revoke: undefined,
      kind: undefined,
      user: [],
      yes: false,
      noExport: false,
    };
    expect((await run('x', 'show', '7')).given).toEqual({ ID: 7, REST: [], maxRows: 10, ...nothing });
    const words = 'show --yes --no-export --kind=two 7 a b --max-rows 3 --user 1 --user=2 --data d';
    expect((await run('x', ...words.split(' '))).given).toEqual({
      ID: 7,
      REST: ['a', 'b'],
      maxRows: 3,
      user: ['1', '2'],
      yes: true,
      noExport: true,
      kind: 'two',
      data: 'd',
      json: false,
      revoke: undefined,
    });
    expect(await run('x', 'need', '--account', '1')).toMatchObject({ code: 3, given: { account: 1 } });
  });

  it('The value of an option may begin with a dash, like tokens and client ids', async () => {
    for (const [words, revoke] of [
      ['--revoke -P6ZC3XZ', '-P6ZC3XZ'],
      ['--revoke --6T_9c7', '--6T_9c7'],
      ['--revoke=-P6ZC3XZ', '-P6ZC3XZ'],
      ['--revoke=--yes', '--yes'],
      ['--revoke=-h', '-h'],
    ] as const)
      expect((await run('x', 'show', '7', ...words.split(' '))).given, words).toMatchObject({ revoke });
    expect((await run('x', 'show', '7', '--user', '-5', '--user', '-6', '--yes')).given).toMatchObject({
      user: ['-5', '-6'],
      yes: true,
    });
  });

  it('The words of a command after -- are not parsed as options', async () => {
    expect((await run('x', 'show', '7', '--', '-h', '--yes')).given).toMatchObject({
      REST: ['-h', '--yes'],
      yes: false,
    });
  });

  it.each([
    ['an option instead of a value', ['show', '7', '--revoke', '--yes'], '--revoke has no value: --yes is an option'],
    ['the help option instead of a value', ['show', '7', '--revoke', '-h'], '--revoke has no value: -h is an option'],
    ['a missing value', ['show', '7', '--revoke'], '--revoke has no value'],
    ['an unknown option', ['show', '7', '-P6ZC3XZ'], "unknown option '-P6ZC3XZ'"],
    ['a dash after a flag', ['show', '7', '--yes', '-P6ZC3XZ'], "unknown option '-P6ZC3XZ'"],
    ['a value of a flag', ['show', '7', '--yes=1'], "unknown option '--yes=1'"],
    ['two values of an option that takes one', ['show', '7', '--revoke', 'a', '--revoke=b'], '--revoke is given twice'],
    ['two data folders', ['show', '7', '--data', 'a', '--data', 'a'], '--data is given twice'],
    ['an empty value', ['show', '7', '--data', ''], '--data has an empty value'],
    ['an empty value behind a sign', ['show', '7', '--data='], '--data has an empty value'],
    ['an empty word', ['show', '7', ''], 'REST is empty'],
    ['a missing word', ['show'], 'ID is missing'],
    ['a missing required option', ['need'], '--account is missing'],
    ['an extra word', ['need', 'a', '--account', '1'], 'too many arguments'],
    ['a number that is not a positive integer', ['show', '1e3'], "ID must be a positive integer, not '1e3'"],
    ['an integer that is too large', ['show', '9007199254740993'], 'ID must be a positive integer'],
    ['a number above the maximum', ['show', '7', '--max-rows', '101'], '--max-rows must be at most 100'],
    ['a value that is not a choice', ['show', '7', '--kind', 'on'], "--kind must be one of one, two, not 'on'"],
    ['a misspelled option', ['need', '--acount', '1'], "unknown option '--acount' (did you mean --account?)"],
  ])('The words of a command are refused with %s', async (_what, words, message) => {
    await expect(run('x', ...words)).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining(message) as string,
      hint: `Usage: tributary x ${
        words[0] === 'need'
          ? 'need --account N [--data DIR]'
          : 'show ID [REST...] [--revoke PREFIX] [--user TEXT]... [--yes] [--no-export] [--max-rows K] [--kind one|two] [--data DIR]'
      }`,
    });
  });

  it('A misspelled command is reported with the nearest name', async () => {
    await expect(run('y')).rejects.toMatchObject({ code: 'usage', message: "unknown command 'y'" });
    await expect(run('x', 'shw', '7')).rejects.toMatchObject({
      code: 'usage',
      message: "unknown command 'shw' (did you mean show?)",
      hint: "Run 'tributary x --help' for a list of commands.",
    });
    await expect(run('y', '--help')).rejects.toMatchObject({ message: "unknown command 'y'" });
  });
});

describe('the help of a command', () => {
  it('The help of a command has its usage, words, options, examples and exit codes, and runs nothing', async () => {
    for (const words of [
      ['x', 'need', '--help'],
      ['x', 'need', '--bogus', '-h'],
    ]) {
      const { code, given, printed } = await run(...words);
      expect({ code, given }).toEqual({ code: 0, given: undefined });
      expect(printed).toContain('Usage: tributary x need --account N [--data DIR]');
      expect(printed).toMatch(/--account N +whose\n/);
      expect(printed).toMatch(/-V, --version +print the version\n/);
      expect(printed).toMatch(/Exit codes:\n {2}0 {2}success\n {2}1 {2}nothing was there; or: failure/);
    }
    const { printed } = await run('x', 'show', '-h');
    expect(printed).toMatch(/Arguments:\n {2}ID +what\n/);
    expect(printed).toMatch(/--max-rows K +rows \(10\)\n/);
    expect(printed).toContain('Examples:\n  tributary x show 7 --yes\n');
  });

  it('The help of a group and of the program lists their commands, and a missing command is an error', async () => {
    expect(await run('x', '--help')).toMatchObject({
      code: 0,
      printed: expect.stringMatching(/show ID \[REST\.\.\.\] +show something/),
    });
    expect(await run('--help')).toMatchObject({ code: 0, printed: expect.stringMatching(/Commands:\n {2}x +try it/) });
    expect(await run('x')).toMatchObject({ code: 1, printed: '', noted: expect.stringContaining('need something') });
    expect(await run()).toMatchObject({ code: 1, printed: '', noted: expect.stringContaining('try it') });
  });

  it('The version is printed everywhere', async () => {
    for (const words of [['-V'], ['--version'], ['x', '-V'], ['x', 'show', '--version']])
      expect(await run(...words), words.join(' ')).toMatchObject({
        code: 0,
        given: undefined,
        printed: expect.stringMatching(/^\d+\.\d+\.\d+$/),
      });
  });
});
