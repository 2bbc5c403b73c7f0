import { describe, expect, it } from 'vitest';
import type { Command, CommandSpec } from '../../../src/cli/command.ts';
import { runProgram } from '../../../src/cli/program.ts';
import { loadDeclaredCommands } from '../../helpers/declared-commands.ts';

const commands = await loadDeclaredCommands();
const never = new AbortController().signal;

/** Parses a call with all declared commands; returns the verb, its values and the notes. */
async function call(line: string) {
  const called: { verb?: string; given?: object } = {};
  const [notes, printed]: [string[], string[]] = [[], []];
  const idle = (commandSpec: CommandSpec, name: string): CommandSpec => ({
    ...commandSpec,
    run: (given) => Promise.resolve(void Object.assign(called, { verb: name, given })),
  });
  const parsed = commands.map((command): Command => {
    if (!('commands' in command)) return idle(command, command.name);
    return {
      ...command,
      commands: command.commands.map((commandSpec) => idle(commandSpec, `${command.name} ${commandSpec.name}`)),
    };
  });
  await runProgram(parsed, line.split(' '), {
    environment: {},
    entry: '',
    printResult: () => undefined,
    print: (text) => void printed.push(text),
    printMessage: (text) => void notes.push(text),
    stop: never,
    force: never,
  });
  return { ...called, notes, printed: printed.join('\n') };
}

const note = (was: string, is: string): string =>
  `tributary: '${was}' is deprecated and will be removed in version 0.5; use '${is}'`;

describe('former names of the command line', () => {
  it.each([
    ['key rotate', 'key rotate links', note('tributary key rotate', 'tributary key rotate links')],
    [
      'key receipts --data d',
      'key rotate receipts --data d',
      note('tributary key receipts', 'tributary key rotate receipts'),
    ],
    ['key sessions', 'key rotate sessions', note('tributary key sessions', 'tributary key rotate sessions')],
    ['key operator', 'key rotate operator', note('tributary key operator', 'tributary key rotate operator')],
    ['app token 7', 'app token add 7', note('tributary app token', 'tributary app token add')],
    ['app token --data d 7', 'app token add --data d 7', note('tributary app token', 'tributary app token add')],
    [
      'app token 7 --revoke Kx2 --data d',
      'app token revoke 7 Kx2 --data d',
      note('tributary app token --revoke', 'tributary app token revoke'),
    ],
    [
      'app token --revoke=Kx2 7',
      'app token revoke 7 Kx2',
      note('tributary app token --revoke', 'tributary app token revoke'),
    ],
    [
      'app token 7 --revoke -P6Z',
      'app token revoke 7 -- -P6Z',
      note('tributary app token --revoke', 'tributary app token revoke'),
    ],
    ['user secret 1', 'user rotate-secret 1', note('tributary user secret', 'tributary user rotate-secret')],
    ['import --again a.csv', 'import --reimport a.csv', note('--again', '--reimport')],
    ['import --patience 5 a.csv', 'import --retry-timeout 5 a.csv', note('--patience', '--retry-timeout')],
    ['import --patience=5 a.csv', 'import --retry-timeout=5 a.csv', note('--patience', '--retry-timeout')],
    ['erase --file f --as device', 'erase --file f --id-type device', note('--as', '--id-type')],
    ['erase --user 1 --kind game', 'erase --user 1 --user-id-type game', note('--kind', '--user-id-type')],
    ['erase --app 1 --now', 'erase --app 1 --skip-retention', note('--now', '--skip-retention')],
  ])("'%s' is the same call as '%s', with a note of the new name", async (was, is, noted) => {
    const present = await call(is);
    expect(present).toMatchObject({ verb: expect.any(String) as string, notes: [] });
    expect(await call(was)).toEqual({ ...present, notes: [noted] });
  });

  it('A word after -- and a value stay, and so does the option of another command', async () => {
    expect(await call('import -- --again')).toMatchObject({ given: { FILE: ['--again'] }, notes: [] });
    expect(await call('erase --user=--now --dry-run')).toMatchObject({ given: { user: '--now' }, notes: [] });
    await expect(call('erase --user --now')).rejects.toThrow('--user has no value: --skip-retention is an option');
    expect(await call('segment add 5 --account 1 --kind device -')).toMatchObject({ notes: [] });
  });

  it('A former option of revocation without its value is refused, and revokes nothing', async () => {
    await expect(call('app token 7 --revoke')).rejects.toThrow('PREFIX is missing');
    await expect(call('app token 7 --revoke a --revoke b')).rejects.toThrow('unknown option');
  });

  it('The help of a group lists its commands of two words', async () => {
    for (const line of ['key --help', 'key rotate --help', 'key rotate -h'])
      expect(await call(line)).toMatchObject({
        notes: [],
        printed: expect.stringMatching(/ {2}rotate links +rotate the key/) as string,
      });
    expect(await call('app token add --help')).toMatchObject({
      printed: expect.stringContaining('tributary app token add ID') as string,
    });
    expect((await call('key receipts --help')).printed).toContain('Usage: tributary key rotate receipts');
  });
});
