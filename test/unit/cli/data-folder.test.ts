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

/** Runs a command as the program does, in the folder of the test; returns its output. */
async function run(command: Command, words: readonly string[], environment: Environment = {}): Promise<unknown[]> {
  const answers: unknown[] = [];
  const keep = (line: unknown): void => void answers.push(line);
  const context: CommandContext = {
    environment,
    entry: '',
    printResult: keep,
    print: keep,
    printMessage: () => undefined,
    stop: never,
    force: never,
  };
  await runCommandHere(command, words, context);
  return answers;
}

/** Commands that need an existing data folder. */
const needsFolder: readonly (readonly [Command, string])[] = [
  [statusCommand, ''],
  [appCommand, 'list'],
  [appCommand, 'token add 1'],
  [appCommand, 'token revoke 1 abcd'],
  [appCommand, 'remove 1'],
  [appCommand, 'restore 1'],
  [userCommand, 'list'],
  [userCommand, 'remove 1'],
  [userCommand, 'rotate-secret 1'],
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
/** Commands that create a data folder. */
const makesFolder: readonly (readonly [Command, string])[] = [
  [appCommand, 'add 1 --platform web'],
  [userCommand, 'add ann --account 1'],
  [keyCommand, 'rotate links'],
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

  it('Commands that read or change a data folder reject a missing one, named or default, and do not create it', async () => {
    for (const [command, words] of needsFolder) {
      const what = `${command.name} ${words}`;
      await expect(run(command, split(words)), what).rejects.toMatchObject({
        code: 'not_found',
        message: `data folder ${path.join(folder, 'data')} does not exist`,
      });
      await expect(run(command, [...split(words), '--data', 'else/where']), what).rejects.toMatchObject({
        code: 'not_found',
        message: `data folder ${path.join(folder, 'else', 'where')} does not exist`,
      });
      await expect(run(command, split(words), { TRIBUTARY_DATA_DIR: 'variable' }), what).rejects.toMatchObject({
        code: 'not_found',
      });
    }
    expect(everything()).toEqual([]);
  });

  it('Commands that add to a data folder create a missing one only if it is named', async () => {
    for (const [command, words] of makesFolder) {
      await expect(run(command, split(words)), command.name).rejects.toMatchObject({
        code: 'not_found',
        hint: expect.stringContaining('pass --data: a named folder is created'),
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

  it('A data folder is distinguished from other folders and from files', async () => {
    mkdirSync('data');
    writeFileSync(path.join('data', 'notes.txt'), '');
    for (const [command, words] of needsFolder) {
      await expect(run(command, split(words)), command.name).rejects.toMatchObject({
        code: 'not_found',
        message: `${path.join(folder, 'data')} is not a data folder: it has no files of tributary`,
      });
    }
    for (const [command, words] of [...needsFolder, ...makesFolder]) {
      await expect(run(command, [...split(words), '--data', 'data/notes.txt']), command.name).rejects.toMatchObject({
        code: 'usage',
        message: expect.stringContaining('notes.txt is not a folder'),
      });
    }
    expect(everything()).toEqual(['data', path.join('data', 'notes.txt')]);
  });

  it('A data folder that cannot be read is refused with the code disk', async () => {
    symlinkSync('data', 'data');
    for (const [command, words] of needsFolder)
      await expect(run(command, split(words)), command.name).rejects.toMatchObject({
        code: 'disk',
        message: `cannot read the data folder ${path.join(folder, 'data')}`,
        hint: 'Run the command as the user of the service.',
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
        message: expect.stringContaining('no lake found in'),
      });
    expect(everything()).toEqual(before);
  });
});
