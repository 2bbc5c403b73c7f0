import { expect, it } from 'vitest';
import { appCommand } from '../../../src/cli/app.ts';
import type { CommandContext } from '../../../src/cli/command.ts';
import { userCommand } from '../../../src/cli/user.ts';
import { testFolder } from '../../helpers/folder.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

const never = new AbortController().signal;

it('A removal needs confirmation on a terminal unless --yes is given, and any answer but yes changes nothing', async () => {
  const data = testFolder();
  const asked: string[] = [];
  const answers: unknown[] = [];
  const base: CommandContext = {
    environment: {},
    entry: '',
    printResult: (value) => void answers.push(value),
    print: () => undefined,
    printMessage: () => undefined,
    stop: never,
    force: never,
  };
  const confirm = (isYes: boolean) => ({
    ...base,
    confirm: (question: string) => {
      asked.push(question);
      return Promise.resolve(isYes);
    },
  });
  for (const [command, add] of [
    [appCommand, ['add', '1', '--platform', 'web']],
    [userCommand, ['add', 'ann', '--account', '1']],
  ] as const) {
    await runCommandHere(command, [...add, '--data', data], base);
    const remove = ['remove', '1', '--data', data];
    await expect(runCommandHere(command, remove, confirm(false))).rejects.toMatchObject({
      code: 'usage',
      message: 'nothing was changed',
    });
    answers.length = 0;
    await runCommandHere(command, ['list', '--data', data], base);
    expect(answers).toHaveLength(1);
    await runCommandHere(command, command === appCommand ? remove : [...remove, '--yes'], confirm(true));
    answers.length = 0;
    await runCommandHere(command, ['list', '--data', data], base);
    expect(answers).toEqual([]);
  }
  expect(asked).toHaveLength(3);
});
