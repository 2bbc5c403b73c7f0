import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { listApps, listUsers } from '../../../src/access/listing.ts';
import { appCommand } from '../../../src/cli/app.ts';
import type { Command, CommandContext } from '../../../src/cli/command.ts';
import { initCommand } from '../../../src/cli/init.ts';
import { userCommand } from '../../../src/cli/user.ts';
import { dataPaths } from '../../../src/config.ts';
import { testFolder } from '../../helpers/folder.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

const never = new AbortController().signal;
const silent = (): void => undefined;

/** Runs a command on a data folder in this process; returns its answers. */
async function run(command: Command, data: string, words: string, environment = {}): Promise<unknown[]> {
  const answers: unknown[] = [];
  const context: CommandContext = {
    environment,
    entry: '',
    answer: (value) => void answers.push(value),
    print: silent,
    note: silent,
    stop: never,
    force: never,
  };
  await runCommandHere(command, [...words.split(' '), '--data', data], context);
  return answers;
}

describe('apps and users of the command line', () => {
  it('What is set of an app and a user changes that alone, and none takes it away', async () => {
    const data = path.join(testFolder(), 'data');
    await run(appCommand, data, 'add 7 --platform web --title Shop --project 3');
    await run(userCommand, data, 'add ann --account 1 --max-exports 2 --files gzip');
    const [app, user] = [listApps(dataPaths(data))[0], listUsers(dataPaths(data))[0]];
    expect(await run(appCommand, data, 'set 7 --title Market')).toEqual([{ ...app, title: 'Market' }]);
    const { idProject: _, ...without } = app!;
    expect(await run(appCommand, data, 'set 7 --project none')).toEqual([{ ...without, title: 'Market' }]);
    expect(await run(userCommand, data, 'set 1 --export no')).toEqual([{ ...user, canExport: false }]);
    expect(await run(userCommand, data, 'set 1 --export yes --max-exports none --files auto')).toEqual([
      { idUser: '1', name: 'ann', idAccount: '1', canExport: true, files: 'auto' },
    ]);
    await expect(run(appCommand, data, 'set 7')).rejects.toThrow(/nothing is to be changed/);
    await expect(run(appCommand, data, 'set 8 --title x')).rejects.toThrow(/there is no app 8/);
    await expect(run(userCommand, data, 'set 2 --export no')).rejects.toThrow(/there is no user 2/);
    await expect(run(userCommand, data, 'set 1 --max-exports 0')).rejects.toThrow(/must be a positive integer/);
  });

  it('Init makes nothing where the profile that gets the secrets cannot be written', async () => {
    const data = path.join(testFolder(), 'data');
    const environment = { XDG_CONFIG_HOME: '/proc/nowhere' };
    await expect(run(initCommand, data, '--title Mine', environment)).rejects.toThrow(/takes no new folder/);
    expect([listApps(dataPaths(data)), listUsers(dataPaths(data))]).toEqual([[], []]);
  });
});
