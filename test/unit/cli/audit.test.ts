import path from 'node:path';
import { expect, it } from 'vitest';
import { listUsers } from '../../../src/access/users.ts';
import { appCommand } from '../../../src/cli/app.ts';
import { auditedCommands } from '../../../src/cli/audited-commands.ts';
import { auditCommand } from '../../../src/cli/audit.ts';
import type { Command } from '../../../src/cli/command.ts';
import { keyCommand } from '../../../src/cli/key.ts';
import { lakeCommand } from '../../../src/cli/lake.ts';
import { personCommand } from '../../../src/cli/person.ts';
import { userCommand } from '../../../src/cli/user.ts';
import { dataPaths } from '../../../src/config.ts';
import { ensureLake } from '../../../src/lake/lake.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { loadDeclaredCommands } from '../../helpers/declared-commands.ts';
import { testFolder } from '../../helpers/folder.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

async function run(command: Command, data: string, words: readonly string[], environment = {}, input?: string) {
  const answers: unknown[] = [];
  const notes: string[] = [];
  const never = new AbortController().signal;
  await runCommandHere(command, [...words, '--data', data], {
    environment,
    entry: '',
    printResult: (value) => void answers.push(value),
    print: (line) => void answers.push(line),
    printMessage: (line) => void notes.push(line),
    stop: never,
    force: never,
    ...(input === undefined
      ? {}
      : {
          input: async function* () {
            yield Buffer.from(input);
          },
        }),
  });
  return { answers, notes };
}

it('Commands that change access are in the audit log with their system user and result, filtered, and as CSV', async () => {
  const data = path.join(testFolder(), 'data');
  const { answers: added } = await run(userCommand, data, ['add', 'ann', '--account', '1'], { SUDO_USER: 'eve' });
  await run(userCommand, data, ['rotate-secret', '1']);
  await run(userCommand, data, ['list']);
  await run(keyCommand, data, ['rotate', 'links']);
  await run(appCommand, data, ['add', '7', '--platform', 'web']);
  await expect(run(appCommand, data, ['token', 'add', '8'])).rejects.toMatchObject({ code: 'not_found' });
  await expect(run(appCommand, data, ['add', '9'])).rejects.toMatchObject({ code: 'usage' });
  const { answers } = await run(auditCommand, data, []);
  expect(answers).toMatchObject([
    { action: 'app_token_add', outcome: 'failed', subject: 'app 8', detail: 'not_found' },
    { action: 'app_add', outcome: 'ok', subject: 'app 7' },
    { action: 'key_rotate', subject: 'links' },
    { action: 'user_rotate_secret', subject: 'user 1' },
    { action: 'user_add', outcome: 'ok', subject: 'user 1', systemUser: expect.stringMatching(/^eve as ./) as unknown },
  ]);
  const [user] = added as { readonly secret: string }[];
  expect(JSON.stringify(answers)).not.toContain(user?.secret);
  const filtered = await run(auditCommand, data, ['--outcome', 'ok', '--subject', 'app', '--csv']);
  expect(filtered.answers).toEqual([
    'time,action,outcome,idUser,name,systemUser,address,subject,detail,count,host,id',
    expect.stringMatching(/^[\d:.TZ-]+,app_add,ok,,,[^,]+,,app 7,,,,[0-9a-f]{16}$/),
  ]);
  const limited = await run(auditCommand, data, ['--limit', '1']);
  expect(limited).toMatchObject({
    answers: [{ action: 'app_token_add' }],
    notes: [expect.stringMatching(/^older entries exist/) as unknown],
  });
  expect((await run(auditCommand, data, ['--to', 'yesterday'])).answers).toEqual([]);
});

it('Age limits and the removal of rows by them are in the audit log; a dry run is not', async () => {
  const data = path.join(testFolder(), 'data');
  await ensureLake(dataPaths(data).lake, { clock: createClock(0), retentionMs: 1 });
  await run(appCommand, data, ['add', '7', '--platform', 'web']);
  await run(appCommand, data, ['keep', '7', '--days', '90', '--kind', 'login', '--yes']);
  await run(appCommand, data, ['keep', '7', '--forever']);
  await run(lakeCommand, data, ['expire', '--dry-run']);
  await run(lakeCommand, data, ['expire', '--yes']);
  const { answers } = await run(auditCommand, data, ['--limit', '4']);
  expect(answers).toMatchObject([
    { action: 'lake_expire', outcome: 'ok', subject: 'age limits' },
    { action: 'lake_expire', outcome: 'started' },
    { action: 'app_keep', outcome: 'ok', subject: 'app 7, forever' },
    { action: 'app_keep', outcome: 'ok', subject: 'app 7, login, 90 days' },
  ]);
});

it('An export of persons is in the audit log with the number of their ids, and never with an id', async () => {
  const folder = testFolder();
  const data = path.join(folder, 'data');
  await ensureLake(dataPaths(data).lake, { clock: createClock(0), retentionMs: 1 });
  await run(appCommand, data, ['add', '7', '--platform', 'web']);
  const words = ['export', 'anna', 'ben', '--app', '7', '-o', path.join(folder, 'persons')];
  await run(personCommand, data, words);
  const { answers } = await run(auditCommand, data, ['--action', 'person_export']);
  const subject = '2 ids of a user, app 7';
  expect(answers).toMatchObject([
    { outcome: 'ok', subject },
    { outcome: 'started', subject },
  ]);
  expect(JSON.stringify(answers)).not.toContain('anna');
});

it('Every command of the audit log exists', async () => {
  const verbs = (await loadDeclaredCommands()).flatMap((command) =>
    'commands' in command ? command.commands.map(({ name }) => `${command.name} ${name}`) : [command.name],
  );
  expect(Object.keys(auditedCommands).filter((name) => !verbs.includes(name))).toEqual([]);
});

it('A password is set, read from standard input or removed by a command, and a bad one changes nothing', async () => {
  const data = path.join(testFolder(), 'data');
  await run(userCommand, data, ['add', 'ann', '--account', '1']);
  const stored = async () => (await listUsers(dataPaths(data)))[0]?.hasPassword;
  const made = await run(userCommand, data, ['password', '1']);
  expect(made.answers).toEqual([
    { idUser: '1', name: 'ann', password: expect.stringMatching(/^([a-z2-9]{5}-){3}[a-z2-9]{5}$/) as unknown },
  ]);
  expect(await stored()).toBe(true);
  const removed = await run(userCommand, data, ['password', '1', '--remove']);
  expect(removed.answers).toEqual([{ idUser: '1', name: 'ann', hasPassword: false }]);
  await expect(run(userCommand, data, ['password', '1', '--stdin'], {}, 'too short\n')).rejects.toMatchObject({
    code: 'usage',
  });
  expect(await stored()).toBeUndefined();
  const given = await run(userCommand, data, ['password', '1', '--stdin'], {}, 'correct horse 7\nmore');
  expect(given.answers).toEqual([{ idUser: '1', name: 'ann', hasPassword: true }]);
  const { answers } = await run(auditCommand, data, ['--action', 'user_password']);
  expect(answers).toMatchObject([{ outcome: 'ok', subject: 'user 1' }, { outcome: 'ok' }, { outcome: 'ok' }]);
});
