import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { appCommand } from '../../../src/cli/app.ts';
import type { Command, CommandContext } from '../../../src/cli/command.ts';
import { eraseCommand } from '../../../src/cli/erase.ts';
import { failedCommand } from '../../../src/cli/failed.ts';
import { keyCommand } from '../../../src/cli/key.ts';
import { lakeCommand } from '../../../src/cli/lake.ts';
import { loadCommand } from '../../../src/cli/load.ts';
import { segmentCommand } from '../../../src/cli/segment.ts';
import { statusCommand } from '../../../src/cli/status.ts';
import { userCommand } from '../../../src/cli/user.ts';
import type { Environment } from '../../../src/config.ts';
import { testFolder } from '../../helpers/folder.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

const never = new AbortController().signal;

/** Runs a command as the program does, in the folder of the test; returns its answers. */
async function run(command: Command, words: readonly string[], environment: Environment = {}): Promise<unknown[]> {
  const answers: unknown[] = [];
  const keep = (line: unknown): void => void answers.push(line);
  const context: CommandContext = {
    environment,
    entry: '',
    answer: keep,
    print: keep,
    note: () => undefined,
    stop: never,
    force: never,
  };
  await runCommandHere(command, words, context);
  return answers;
}

/** Reads a data folder, or changes what has to be in it. */
const needsFolder: readonly (readonly [Command, string])[] = [
  [statusCommand, ''],
  [appCommand, 'list'],
  [appCommand, 'token 1'],
  [appCommand, 'token 1 --revoke abcd'],
  [appCommand, 'remove 1'],
  [appCommand, 'restore 1'],
  [userCommand, 'list'],
  [userCommand, 'remove 1'],
  [userCommand, 'secret 1'],
  [segmentCommand, 'add 1 --account 1 /dev/null'],
  [segmentCommand, 'list'],
  [segmentCommand, 'remove 1 --account 1'],
  [loadCommand, 'titles /dev/null'],
  [lakeCommand, 'check'],
  [lakeCommand, 'log'],
  [lakeCommand, 'files'],
  [lakeCommand, 'stats'],
  [lakeCommand, 'repair'],
  [failedCommand, 'list'],
  [failedCommand, 'replay'],
  [eraseCommand, '--app 1'],
];
const needsLake = needsFolder.filter(([command]) => command === lakeCommand || command === failedCommand);
/** Begins with what it adds. */
const makesFolder: readonly (readonly [Command, string])[] = [
  [appCommand, 'add 1 --platform web'],
  [userCommand, 'add ann --account 1'],
  [keyCommand, 'rotate'],
];
const split = (words: string): string[] => words.split(' ').filter((word) => word !== '');

describe('a data folder', () => {
  let folder: string;
  const everything = (): string[] => readdirSync(folder, { recursive: true }).map(String).toSorted();

  beforeEach(() => {
    folder = testFolder();
    const before = process.cwd();
    process.chdir(folder);
    onTestFinished(() => process.chdir(before));
  });

  it('A missing data folder is refused by commands that read or change one, whether it is named or the default, and is not created', async () => {
    for (const [command, words] of needsFolder) {
      const what = `${command.name} ${words}`;
      await expect(run(command, split(words)), what).rejects.toMatchObject({
        code: 'not_found',
        message: `there is no data folder ${path.join(folder, 'data')}`,
      });
      await expect(run(command, [...split(words), '--data', 'else/where']), what).rejects.toMatchObject({
        code: 'not_found',
        message: `there is no data folder ${path.join(folder, 'else', 'where')}`,
      });
      await expect(run(command, split(words), { TRIBUTARY_DATA_DIR: 'variable' }), what).rejects.toMatchObject({
        code: 'not_found',
      });
    }
    expect(everything()).toEqual([]);
  });

  it('A missing data folder is created by commands that add to one only where it is named', async () => {
    for (const [command, words] of makesFolder) {
      await expect(run(command, split(words)), command.name).rejects.toMatchObject({
        code: 'not_found',
        hint: expect.stringContaining('name the folder by --data or TRIBUTARY_DATA_DIR'),
      });
      await expect(run(command, split(words), { TRIBUTARY_DATA_DIR: '' }), command.name).rejects.toMatchObject({
        code: 'not_found',
      });
    }
    expect(everything()).toEqual([]);
    for (const [command, words] of makesFolder) {
      await run(command, [...split(words), '--data', `named/${command.name}`]);
      await run(command, split(words), { TRIBUTARY_DATA_DIR: `variable/${command.name}` });
    }
    expect(readdirSync('.').toSorted()).toEqual(['named', 'variable']);
    mkdirSync('data');
    for (const [command, words] of makesFolder) await run(command, split(words));
    expect(existsSync(path.join('data', 'access.json'))).toBe(true);
  });

  it('A data folder is distinguished from any other folder, and from a file', async () => {
    mkdirSync('data');
    writeFileSync(path.join('data', 'notes.txt'), '');
    for (const [command, words] of needsFolder) {
      await expect(run(command, split(words)), command.name).rejects.toMatchObject({
        code: 'not_found',
        message: `${path.join(folder, 'data')} is no data folder: nothing of tributary is in it`,
      });
    }
    for (const [command, words] of [...needsFolder, ...makesFolder]) {
      await expect(run(command, [...split(words), '--data', 'data/notes.txt']), command.name).rejects.toMatchObject({
        code: 'usage',
        message: expect.stringContaining('notes.txt is a file and no folder'),
      });
    }
    expect(everything()).toEqual(['data', path.join('data', 'notes.txt')]);
  });

  it('A data folder that cannot be read is refused with the code disk', async () => {
    symlinkSync('data', 'data');
    for (const [command, words] of needsFolder)
      await expect(run(command, split(words)), command.name).rejects.toMatchObject({
        code: 'disk',
        message: `the data folder ${path.join(folder, 'data')} cannot be read`,
        hint: 'Run the command as the user that the service runs as.',
      });
    expect(everything()).toEqual(['data']);
  });

  it('A data folder without a lake is read as empty, and gets no lake', async () => {
    await run(appCommand, ['add', '1', '--platform', 'web', '--data', 'data']);
    const before = everything();
    expect(await run(statusCommand, [])).toMatchObject([{ running: false, problems: [] }]);
    expect(await run(appCommand, ['list'])).toMatchObject([{ idApp: '1' }]);
    expect(await run(userCommand, ['list'])).toEqual([]);
    for (const [command, words] of needsLake)
      await expect(run(command, split(words)), words).rejects.toMatchObject({
        code: 'not_found',
        message: expect.stringContaining('there is no lake in'),
      });
    expect(everything()).toEqual(before);
  });
});
