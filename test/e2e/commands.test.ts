import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { beforeEach, describe, expect, it } from 'vitest';
import { ensureLake } from '../../src/lake/lake.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { renderChecksummed } from '../../src/runtime/files/checksummed-json.ts';
import { testFolder } from '../helpers/folder.ts';
import { inTurn, oneTestIn } from '../helpers/in-turn.ts';

beforeEach(oneTestIn(3));

const program = path.resolve(import.meta.dirname, '../../dist/main.js');
const run = promisify(execFile);

interface Outcome {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs the program in a folder, without settings of the machine. */
async function tributary(
  cwd: string,
  words: readonly string[],
  settings: Readonly<Record<string, string>> = {},
): Promise<Outcome> {
  const machine = Object.entries(process.env).filter(([name]) => !name.startsWith('TRIBUTARY_'));
  const result = run(process.execPath, [program, ...words], {
    cwd,
    env: { ...Object.fromEntries(machine), ...settings },
  });
  return result.then(
    ({ stdout, stderr }) => ({ code: 0, out: stdout, err: stderr }),
    (error: unknown) => {
      const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
      return { code, out: stdout, err: stderr };
    },
  );
}

const linesOf = (text: string): unknown[] =>
  text
    .trimEnd()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as unknown);
const everything = (folder: string): string[] => readdirSync(folder, { recursive: true }).map(String).toSorted();

describe('every command', () => {
  it('Every command prints its usage for --help, and so does help with its name, without creating anything', async () => {
    const cwd = testFolder();
    const { out, code } = await tributary(cwd, ['help']);
    expect(code).toBe(0);
    const names = [...out.matchAll(/^ {2}([a-z]+) +\S/gm)].map(([, name]) => name ?? '');
    expect(names.length).toBeGreaterThanOrEqual(10);
    for (const name of inTurn([...names, 'role'], 14)) {
      const asked = await tributary(cwd, [name, '--help']);
      expect(asked, name).toMatchObject({ code: 0, err: '' });
      expect(asked.out).toMatch(new RegExp(`^Usage: tributary ${name}\\b`));
    }
    const forms = [
      ['help', 'app'],
      ['--help', 'app'],
      ['app', '-h'],
    ];
    for (const words of inTurn(forms, 3))
      expect((await tributary(cwd, words)).out, words.join(' ')).toContain('tributary app remove ID');
    const verbForms = [
      ['help', 'app', 'add'],
      ['app', 'add', '--help'],
      ['app', 'add', '1', '--platform', 'web', '--help'],
    ];
    for (const words of inTurn(verbForms, 3))
      expect((await tributary(cwd, words)).out, words.join(' ')).toMatch(/^Usage: tributary app add ID --platform /);
    for (const words of inTurn([['-V'], ['--version'], ['app', '-V'], ['app', 'add', '--version']], 4))
      expect((await tributary(cwd, words)).out, words.join(' ')).toMatch(/^\d+\.\d+\.\d+\n$/);
    expect(await tributary(cwd, ['help', 'nothing'])).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringContaining("unknown command 'nothing'"),
    });
    expect(everything(cwd)).toEqual([]);
  }, 120_000);
});

/** The files of the program that a call loads. */
async function listLoaded(cwd: string, words: readonly string[]): Promise<string[]> {
  const folder = testFolder();
  await tributary(cwd, words, { NODE_V8_COVERAGE: folder });
  const texts = readdirSync(folder).map((name) => readFileSync(path.join(folder, name), 'utf8'));
  const urls = texts.flatMap((text) =>
    (JSON.parse(text) as { result: { url: string }[] }).result.map(({ url }) => url),
  );
  return urls.filter((url) => url.includes(path.dirname(program)));
}

it('The version is answered without loading a command', async () => {
  const cwd = testFolder();
  const loaded = new Set(await listLoaded(cwd, ['key', '--help']));
  const ofVersion = await listLoaded(cwd, ['--version']);
  expect(ofVersion).not.toEqual([]);
  expect(ofVersion.filter((file) => !loaded.has(file))).toEqual([]);
});

describe('a command in the wrong folder', () => {
  it('Every command in the wrong folder reports it in one sentence, prints no result and creates nothing', async () => {
    const cwd = testFolder();
    for (const words of inTurn([['status'], ['lake', 'check'], ['app', 'add', '1', '--platform', 'web']], 3)) {
      const refused = await tributary(cwd, words);
      expect(refused, words.join(' ')).toMatchObject({
        code: 1,
        out: '',
        err: expect.stringContaining(`data folder ${path.join(cwd, 'data')} does not exist`),
      });
      expect(refused.err.trim().split('\n')).toHaveLength(1);
    }
    expect(everything(cwd)).toEqual([]);
  });
});

describe('the lists of an operator', () => {
  it('The commands of segments and titles take lists from files and standard input, and report errors by line', async () => {
    const cwd = testFolder();
    mkdirSync(path.join(cwd, 'data'));
    await tributary(cwd, ['app', 'add', '1', '--platform', 'web', '--account', '7']);
    writeFileSync(path.join(cwd, 'ids.txt.gz'), gzipSync('ann\r\nbea\n\nann\n'));
    const add = (...words: string[]): Promise<Outcome> => tributary(cwd, ['segment', 'add', ...words]);
    const added = await add('5', '--account', '7', 'ids.txt.gz');
    expect(linesOf(added.out)).toEqual([
      { idSegment: '5', idAccount: '7', kind: 'custom', members: 2, ids: 2, lines: 3, replaced: false },
    ]);
    const child = run(process.execPath, [program, 'segment', 'add', '6', '--account', '7', '--kind', 'device', '-'], {
      cwd,
    });
    child.child.stdin?.end('device one\n');
    expect(linesOf((await child).stdout)).toMatchObject([{ idSegment: '6', kind: 'device', ids: 1 }]);
    expect(linesOf((await tributary(cwd, ['segment', 'list', '--account', '7'])).out)).toMatchObject([
      { idSegment: '5', idAccount: '7', kind: 'custom', ids: 2 },
      { idSegment: '6', idAccount: '7', kind: 'device', ids: 1 },
    ]);
    expect(linesOf((await tributary(cwd, ['segment', 'remove', '6', '--account', '7'])).out)).toEqual([
      { idSegment: '6', idAccount: '7', removed: true },
    ]);
    const refusals = [
      [['5', '--account', '8', 'ids.txt.gz'], 'account 8 does not exist'],
      [['5', '--account', '7', 'none.txt'], 'cannot read none.txt'],
      [['5', '--account', '7', '--kind', 'x', 'ids.txt.gz'], '--kind must be one of custom, device'],
      [['x', '--account', '7', 'ids.txt.gz'], 'ID must be a positive integer'],
      [['5', 'ids.txt.gz'], '--account is missing'],
    ] as const;
    for (const [words, reason] of inTurn(refusals, 3))
      expect(await add(...words)).toMatchObject({ code: 1, out: '', err: expect.stringContaining(reason) });

    const load = (...words: string[]): Promise<Outcome> => tributary(cwd, ['load', 'titles', ...words]);
    writeFileSync(path.join(cwd, 'titles.csv'), 'idCampaign,66,Winter\nidCampaign,67,"Spring, early"\n');
    writeFileSync(path.join(cwd, 'bad.csv'), 'idCampaign,66,Summer\nidCampain,1,x\n');
    expect(linesOf((await load('titles.csv')).out)).toEqual([{ rows: 2, titles: 2, fields: { idCampaign: 2 } }]);
    const refused = await load('titles.csv', 'bad.csv');
    expect(refused).toMatchObject({ code: 1, err: expect.stringContaining('nothing was changed') });
    expect(linesOf(refused.out)).toMatchObject([{ file: 'bad.csv', badLines: 1, first: [{ line: 2 }] }]);
    expect(await tributary(cwd, ['load', 'nothing', 'x'])).toMatchObject({ code: 1, out: '' });
  }, 120_000);
});

describe('lake enrich', () => {
  it('The command lake enrich prints the filled rows of each table, and changes nothing without a database', async () => {
    const cwd = testFolder();
    await ensureLake(path.join(cwd, 'data/lake'), { clock: createClock(0), retentionMs: 1000 });
    const enriched = await tributary(cwd, ['lake', 'enrich']);
    expect(enriched).toMatchObject({ code: 0, err: '' });
    expect(linesOf(enriched.out)).toEqual([
      {
        geoDate: expect.stringMatching(/^20\d\d-\d\d-\d\d$/),
        tables: [{ table: 'events', rows: 0, filesRewritten: 0, files: 0 }],
      },
    ]);
    const refused = await tributary(cwd, ['lake', 'enrich'], { TRIBUTARY_GEO_DB: 'missing.mmdb' });
    expect(refused).toMatchObject({ code: 1, out: '' });
    expect(refused.err).toContain(path.join(cwd, 'missing.mmdb'));
  });
});

describe('access commands', () => {
  it('The access commands list what exists, one line each, and remove it', async () => {
    const cwd = testFolder();
    mkdirSync(path.join(cwd, 'data'));
    const ask = async (...words: readonly string[]): Promise<unknown[]> => linesOf((await tributary(cwd, words)).out);
    const [app] = (await ask(
      'app',
      'add',
      '7',
      '--platform',
      'game',
      '--title',
      'Seven',
      '--account',
      '3',
      '--project',
      '5',
    )) as { token: string }[];
    await ask('app', 'add', '8', '--platform', 'web', '--sdk-key', 'eight');
    const [user] = (await ask('user', 'add', 'ann', '--account', '3', '--no-export', '--max-exports', '2')) as {
      secret: string;
    }[];
    expect(await ask('app', 'list')).toMatchObject([
      {
        idApp: '7',
        platform: 'game',
        title: 'Seven',
        idAccount: '3',
        idProject: '5',
        tokens: [{ prefix: app?.token.slice(0, 8) }],
      },
      { idApp: '8', platform: 'web', title: 'App 8', idAccount: '1', sdkKey: 'eight' },
    ]);
    expect(await ask('user', 'list')).toEqual([
      { idUser: '1', name: 'ann', idAccount: '3', canExport: false, maxExports: 2, files: 'auto' },
    ]);
    expect(await ask('user', 'add', 'olga', '--operator')).toMatchObject([{ idUser: '2' }]);
    expect(await ask('user', 'list')).toContainEqual({
      idUser: '2',
      name: 'olga',
      canExport: false,
      files: 'auto',
      operator: true,
    });

    const [renewed] = (await ask('user', 'secret', '1')) as { secret: string }[];
    expect(renewed).toEqual({ idUser: '1', secret: expect.stringMatching(/^[\w-]{43}$/) as string });
    expect(renewed?.secret).not.toBe(user?.secret);
    expect(await ask('user', 'remove', '1')).toEqual([{ idUser: '1', name: 'ann' }]);
    expect(await ask('user', 'list')).toMatchObject([{ idUser: '2' }]);

    const [, eight] = (await ask('app', 'list')) as { tokens: { prefix: string }[] }[];
    const revoked = await tributary(cwd, ['app', 'token', '8', '--revoke', eight?.tokens[0]?.prefix ?? '']);
    expect(revoked).toMatchObject({
      code: 0,
      err: expect.stringContaining(
        "app 8 has no token left: its imports are rejected with 403 until 'tributary app token add 8'",
      ),
    });
    const removed = await tributary(cwd, ['app', 'remove', '7']);
    expect(removed).toMatchObject({
      code: 0,
      err: expect.stringContaining("'tributary erase --app 7' erases its rows"),
    });
    expect(await tributary(cwd, ['app', 'remove', '7'])).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringContaining('app 7 was removed at'),
    });
    expect([(await ask('app', 'list')).length, await ask('app', 'list', '--removed')]).toMatchObject([
      1,
      [{ idApp: '7', tokens: [] }],
    ]);
    expect(await ask('app', 'restore', '7')).toMatchObject([{ idApp: '7', token: expect.any(String) as string }]);
  }, 120_000);

  it.skipIf(process.platform !== 'linux' || !existsSync('/usr/bin/script'))(
    'On a terminal of unknown width the output has the default width',
    async () => {
      const folder = testFolder();
      await tributary(folder, ['app', 'add', '7', '--platform', 'web', '--title', 'Shop', '--data', 'data']);
      const listed = `${process.execPath} ${program} app list --data data`;
      const { stdout } = await run('/usr/bin/script', ['-qefc', `stty columns 0; ${listed}`, '/dev/null'], {
        cwd: folder,
      });
      expect(stdout).toMatch(/idApp +platform +title/);
      expect(stdout).toMatch(/7 +web +Shop/);
    },
  );

  it('The access commands report an SDK key of an earlier version that no filter can name, and reject a new one', async () => {
    const cwd = testFolder();
    expect(
      await tributary(cwd, ['app', 'add', '7', '--platform', 'web', '--sdk-key', 'a,b', '--data', 'data']),
    ).toMatchObject({ code: 1, err: expect.stringContaining('1 to 255 characters without a comma') });
    expect(everything(cwd)).toEqual([]);
    await tributary(cwd, ['app', 'add', '7', '--platform', 'web', '--data', 'data']);
    const file = path.join(cwd, 'data', 'access.json');
    const { sha256: _, ...access } = JSON.parse(readFileSync(file, 'utf8')) as {
      sha256: string;
      apps: { sdkKey: string }[];
    };
    if (access.apps[0] !== undefined) access.apps[0].sdkKey = 'a,b';
    writeFileSync(file, renderChecksummed({ ...access }));
    expect(await tributary(cwd, ['app', 'list'])).toMatchObject({
      code: 0,
      out: expect.stringContaining('"sdkKey":"a,b"'),
      err: expect.stringContaining('app 7: the SDKKey filter cannot match its SDK key'),
    });
  });
});
