import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { listApps, listKeepRules } from '../../../src/access/apps.ts';
import { listUsers } from '../../../src/access/users.ts';
import { appCommand } from '../../../src/cli/app.ts';
import { resolveImport } from '../../../src/cli/service-client.ts';
import type { Command, CommandContext } from '../../../src/cli/command.ts';
import { initCommand } from '../../../src/cli/init.ts';
import { keyCommand } from '../../../src/cli/key.ts';
import { segmentCommand } from '../../../src/cli/segment.ts';
import { userCommand } from '../../../src/cli/user.ts';
import { changeProfiles, profilesPath, readProfiles } from '../../../src/client/profiles.ts';
import { dataPaths } from '../../../src/config.ts';
import type { Table } from '../../../src/lake/log/table.ts';
import { drainStream } from '../../../src/admin/erase/drain.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import { hasEnded } from '../../../src/runtime/processes/procfs.ts';
import type { StreamPublisher } from '../../../src/stream/stream.ts';
import { testFolder } from '../../helpers/folder.ts';
import { mountSmallDisk } from '../../helpers/small-disk.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

const never = new AbortController().signal;
const silent = (): void => undefined;

const silentContext: CommandContext = {
  environment: {},
  entry: '',
  printResult: silent,
  print: silent,
  printMessage: silent,
  stop: never,
  force: never,
};

/** Runs a command on a data folder in this process; returns its answers. */
async function run(
  command: Command,
  data: string,
  words: string,
  environment = {},
  stop: AbortSignal = never,
): Promise<unknown[]> {
  const answers: unknown[] = [];
  const context = { ...silentContext, environment, printResult: (value: unknown) => void answers.push(value), stop };
  await runCommandHere(command, [...words.split(' '), '--data', data], context);
  return answers;
}

describe('apps and users of the command line', () => {
  it('An app keeps its rows for a number of days, by kind or forever, until the limit is removed', async () => {
    const data = path.join(testFolder(), 'data');
    await run(appCommand, data, 'add 7 --platform web');
    const keep = async (words: string): Promise<unknown> => {
      const [app] = await run(appCommand, data, `keep 7 ${words}`);
      return (app as { readonly keep?: unknown }).keep;
    };
    expect(await keep('--days 400')).toEqual({ days: 400 });
    expect(await keep('--days 90 --kind login')).toEqual({ days: 400, kinds: { login: 90 } });
    expect(await keep('--forever')).toEqual({ days: 0, kinds: { login: 90 } });
    expect(await keep('--remove --kind login')).toEqual({ days: 0 });
    await run(appCommand, data, 'remove 7 --yes');
    expect(await listKeepRules(dataPaths(data))).toEqual([{ idApp: 7, days: 0 }]);
    await run(appCommand, data, 'restore 7');
    expect(await keep('--remove')).toBeUndefined();
    await expect(keep('--days 1 --forever')).rejects.toThrow('pass one of --days, --forever and --remove');
    await expect(keep('--days 40000')).rejects.toThrow('at most 36500');
    await expect(keep('--days 1 --kind logins')).rejects.toThrow('--kind must be one of');
    await expect(run(appCommand, data, 'keep 8 --days 1')).rejects.toThrow('app 8 does not exist');
  });

  it('A change of an app or a user sets only the given fields, and none removes a value', async () => {
    const data = path.join(testFolder(), 'data');
    await run(appCommand, data, 'add 7 --platform web --title Shop --project 3');
    await run(userCommand, data, 'add ann --account 1 --max-exports 2 --files gzip');
    const [app, user] = [(await listApps(dataPaths(data)))[0], (await listUsers(dataPaths(data)))[0]];
    expect(await run(appCommand, data, 'set 7 --title Market')).toEqual([{ ...app, title: 'Market' }]);
    const { idProject: _, ...without } = app!;
    expect(await run(appCommand, data, 'set 7 --project none')).toEqual([{ ...without, title: 'Market' }]);
    expect(await run(userCommand, data, 'set 1 --export no')).toEqual([{ ...user, canExport: false }]);
    expect(await run(userCommand, data, 'set 1 --export yes --max-exports none --files auto')).toEqual([
      { idUser: '1', name: 'ann', idAccount: '1', canExport: true, files: 'auto' },
    ]);
    await expect(run(appCommand, data, 'set 7')).rejects.toThrow(/nothing to change/);
    await expect(run(appCommand, data, 'set 8 --title x')).rejects.toThrow(/app 8 does not exist/);
    await expect(run(userCommand, data, 'set 2 --export no')).rejects.toThrow(/user 2 does not exist/);
    await expect(run(userCommand, data, 'set 1 --max-exports 0')).rejects.toThrow(/must be a positive integer/);
  });

  it('Init creates nothing if the profile for the secrets cannot be written', async () => {
    const data = path.join(testFolder(), 'data');
    const environment = { XDG_CONFIG_HOME: '/proc/nowhere' };
    await expect(run(initCommand, data, '--title Mine', environment)).rejects.toThrow(/does not allow new folders/);
    expect([await listApps(dataPaths(data)), await listUsers(dataPaths(data))]).toEqual([[], []]);
  });

  it('A command on a full disk names the disk and the action, and changes nothing', async ({ skip }) => {
    const data = path.join(testFolder(), 'data');
    const disk = mountSmallDisk(data, 2 * 1024 * 1024) ?? skip('no rights to mount a file system');
    await run(userCommand, data, 'add ann --account 1');
    await run(keyCommand, data, 'rotate links');
    const users = await listUsers(dataPaths(data));
    const ids = path.join(testFolder(), 'ids.txt');
    writeFileSync(ids, 'u-1\nu-2\n');
    disk.fill(0);
    for (const [command, words] of [
      [userCommand, 'add bob --account 1'],
      [appCommand, 'add 7 --platform web'],
      [keyCommand, 'rotate links'],
      [segmentCommand, `add 5 --account 1 ${ids}`],
    ] as const)
      await expect(run(command, data, words), words).rejects.toMatchObject({
        code: 'disk',
        message: expect.stringMatching(
          `no space is left on the disk of ${data}|cannot create the folder ${data}.*: the disk is full`,
        ) as unknown,
        hint: 'Free space there, then repeat the command.',
      });
    const drained = drainStream({
      table: { dir: data, lake: () => ({}) } as unknown as Table,
      lakeDir: data,
      publisher: {
        publish: () => Promise.reject(new AppError('publish_unknown', 'no answer')),
      } as unknown as StreamPublisher,
      signal: never,
    });
    await expect(drained).rejects.toMatchObject({
      code: 'disk',
      message: `nothing was erased: no space is left on the disk of ${data}`,
    });
    expect([await listUsers(dataPaths(data)), await listApps(dataPaths(data))]).toEqual([users, []]);
    disk.empty();
    await run(appCommand, data, 'add 7 --platform web');
  });

  it('Each data folder has its own profile, which import and export choose by the folder', async () => {
    const home = testFolder();
    const [first, second, moved] = ['first', 'second', 'moved'].map((name) => path.join(home, name, 'data')) as [
      string,
      string,
      string,
    ];
    const of = (data: string, port = ''): Record<string, string> => ({
      XDG_CONFIG_HOME: home,
      TRIBUTARY_DATA_DIR: data,
      ...(port === '' ? {} : { TRIBUTARY_S2S_PORT: port, TRIBUTARY_API_PORT: String(Number(port) + 1) }),
    });
    const urlAt = async (data: string, given = {}): Promise<string> =>
      (await resolveImport(given, { ...silentContext, environment: of(data) })).url;
    expect(await run(initCommand, first, '--title Mine', of(first, '9001'))).toMatchObject([{ profile: 'default' }]);
    const answer = { profile: 'default-2', importUrl: 'http://127.0.0.1:9003', exportUrl: 'http://127.0.0.1:9004' };
    expect(await run(initCommand, second, '--title Mine', of(second, '9003'))).toMatchObject([answer]);
    // A second call with settings that differ from the service's.
    expect(await run(initCommand, second, '--title Mine', of(second))).toMatchObject([answer]);
    expect([await urlAt(first), await urlAt(second)]).toEqual(['http://127.0.0.1:9001', 'http://127.0.0.1:9003']);
    expect(await urlAt(second, { profile: 'default' })).toBe('http://127.0.0.1:9001');
    // Without a data folder the current profile is used, but never that of another folder.
    expect(await urlAt(path.join(home, 'nowhere'))).toBe('http://127.0.0.1:9001');
    await run(appCommand, moved, 'add 1 --platform web');
    await expect(urlAt(moved)).rejects.toThrow(/the current profile belongs to the data folder .*first/);
    expect(await urlAt(moved, { url: 'http://127.0.0.1:9005' })).toBe('http://127.0.0.1:9005');
    await expect(run(initCommand, second, '--profile default', of(second, '9003'))).rejects.toThrow(/another service/);
  });

  it('A profile of 0.3 without a data folder stays in use, and gets the data folder that matches it', async () => {
    const [home, data] = [testFolder(), path.join(testFolder(), 'data')];
    const environment = { XDG_CONFIG_HOME: home, TRIBUTARY_DATA_DIR: data, TRIBUTARY_S2S_PORT: '9001' };
    const old = { importUrl: 'http://127.0.0.1:9001', idApp: 1, token: 'of 0.3' };
    await run(appCommand, data, 'add 1 --platform web');
    await run(userCommand, data, 'add ann --account 1');
    await changeProfiles(profilesPath(environment), () => ({ current: 'default', profiles: { default: old } }));
    const tokenOf = async (): Promise<string> => (await resolveImport({}, { ...silentContext, environment })).token;
    expect(await tokenOf()).toBe('of 0.3');
    expect(await run(initCommand, data, '--title Mine', environment)).toMatchObject([{ made: [], profile: 'default' }]);
    expect((await readProfiles(profilesPath(environment))).profiles).toMatchObject({
      default: { ...old, dataDir: data },
    });
    // A new data folder at that address has its own secrets, and the earlier ones are kept.
    const other = path.join(testFolder(), 'data');
    expect(await run(initCommand, other, '--title Mine', environment)).toMatchObject([{ profile: 'default-2' }]);
    expect(await tokenOf()).toBe('of 0.3');
  });

  it('A failed init stops the service that was started for it, and without one stops no process', async () => {
    const started = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' });
    onTestFinished(() => void started.kill('SIGKILL'));
    const environment = { XDG_CONFIG_HOME: testFolder() };
    const data = path.join(testFolder(), 'data');
    const fail = (words: string): Promise<unknown> => run(initCommand, data, words, environment, AbortSignal.abort());
    await expect(fail('--wait')).rejects.toMatchObject({ code: 'stopping' });
    expect(hasEnded(started.pid ?? 0)).toBe(false);
    await expect(fail(`--wait --started ${started.pid}`)).rejects.toMatchObject({ code: 'stopping' });
    expect(hasEnded(started.pid ?? 0)).toBe(true);
  });
});
