import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type AddressInfo } from 'node:net';
import path from 'node:path';
import { once } from 'node:events';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Profile } from '../../src/client/profiles.ts';
import { dataPaths } from '../../src/config.ts';
import { describeExportForm } from '../../src/export/api/export-form-metadata.ts';
import { makeSnippets } from '../../src/console/web/new-export/snippets.ts';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { readServiceStates } from '../../src/runtime/processes/service-state.ts';
import { cacheFolder } from '../../src/nats-setup/ensure-nats-server.ts';
import { testFolder } from '../helpers/folder.ts';
import { inWholeRun } from '../helpers/in-turn.ts';
import { isAlive, listTree, signalProcess } from '../helpers/processes.ts';
import { findDuckdbShell } from '../helpers/python-engines.ts';
import { readSheet } from '../helpers/read-sheet.ts';
import { startWithUser } from '../helpers/service-access.ts';
import { noCurl } from '../helpers/shell.ts';
import { waitFor } from '../helpers/wait.ts';

const run = promisify(execFile);
const program = path.join(packageRoot, 'dist/main.js');
/** `make nightly` starts each page from scratch; `make test` does so for the README, and then reuses its service. */
const isEachFromNothing = process.env['TRIBUTARY_TEST_OPERATIONS'] === 'all';

/** The blocks of a language in a section of a page, in their order. */
function blocksOf(page: string, section: string, language = 'sh'): string[] {
  const text = readFileSync(path.join(packageRoot, page), 'utf8');
  const part = text.split(`\n## ${section}\n`)[1]?.split('\n## ')[0] ?? '';
  const blocks = part.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'));
  return [...blocks].map(([, block = '']) => block);
}

/** An environment without settings of tributary. */
function environmentOf(home: string, more: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  const machine = Object.entries(process.env).filter(
    ([name]) => !/^(TRIBUTARY_(?!CACHE_DIR)|XDG_CONFIG|HOME$)/.test(name),
  );
  return { ...Object.fromEntries(machine), HOME: home, TRIBUTARY_CACHE_DIR: cacheFolder(process.env), ...more };
}

async function freePort(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return String(port);
}

/** Runs pasted commands; returns their output. */
async function paste(commands: string, cwd: string, environment: NodeJS.ProcessEnv): Promise<string> {
  const { stdout } = await run('sh', ['-ec', commands], { cwd, env: environment, timeout: 120_000 });
  return stdout;
}

/** Parses the JSON results of commands. */
function answersIn(printed: string): unknown[] {
  return printed
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as unknown);
}

const event = (index: number, customEventName: string): string =>
  JSON.stringify({ eventTimestamp: 1_780_000_000 + index, customUserId: `u-${index}`, customEventName });

/** Creates a person with a checkout, a home folder and free ports; the end of the test stops the service. */
async function createPerson() {
  const home = testFolder();
  const dataDir = path.join(home, 'data');
  const [s2sPort, apiPort] = [await freePort(), await freePort()];
  const environment = environmentOf(home, {
    TRIBUTARY_DATA_DIR: dataDir,
    TRIBUTARY_S2S_PORT: s2sPort,
    TRIBUTARY_API_PORT: apiPort,
    TRIBUTARY_OPS_PORT: '0',
    TRIBUTARY_FLUSH_AGE_MS: '500',
  });
  onTestFinished(async () => {
    const pids = readServiceStates(dataPaths(dataDir).run).flatMap(({ pid }) => listTree(pid));
    for (const pid of pids) signalProcess(pid, 'SIGKILL');
    await waitFor('the service has exited', () => !pids.some(isAlive));
  });
  /** Pastes blocks of a page: the first one in the checkout, those after it in the folder of the files. */
  const pasteBlocks = ([first = '', ...others]: readonly string[]): Promise<string> => {
    const commands = [
      // Readers of the page have the files in the checkout, too.
      first.replaceAll(/\b(?:events|sample)\.(?:ndjson|csv|xlsx)/g, (name) => path.join(home, name)),
      `cd ${home}`,
      ...others,
    ].join('\n');
    const here = commands.replaceAll('127.0.0.1:8080', `127.0.0.1:${s2sPort}`);
    return paste(here.replaceAll('127.0.0.1:8081', `127.0.0.1:${apiPort}`), packageRoot, environment);
  };
  return { home, dataDir, environment, pasteBlocks };
}

type Person = Awaited<ReturnType<typeof createPerson>>;

const numberCell = (value: number) => ({ text: String(value), isNumber: true });

/** A file of a person: their own names of columns, and ISO times of 2015. */
function ownCsv(rows: number): string {
  const lines = Array.from({ length: rows }, (_, index) => {
    const time = new Date(Date.UTC(2015, 0, 1, 10) + index * 1000).toISOString().replace('Z', '+00:00');
    return `u-${index},level_up,${time},${index},${index / 2}`;
  });
  return `user,event,time,level,score\n${lines.join('\n')}\n`;
}

async function readReadme({ home, environment, pasteBlocks }: Person): Promise<void> {
  writeFileSync(path.join(home, 'events.csv'), ownCsv(500));
  const [, block = ''] = blocksOf('README.md', 'Quick start');
  const [init = '', unmapped = '', ...others] = block.trim().split('\n');
  expect(others.length).toBe(2);
  // It ends with exit code 1 and the options to add. A shell of a person then runs the next line.
  const answers = answersIn(await pasteBlocks([[init, `! ${unmapped}`, ...others].join('\n')]));
  expect(answers).toMatchObject([{ made: ['idApp', 'idUser'] }, { stored: 500, refused: 0 }, { rows: 500 }]);
  const [names = [], ...rows] = readSheet(readFileSync(path.join(home, 'events.xlsx')));
  const [user, level, score] = ['customUserId', 'params.level', 'params.score'].map((name) =>
    names.findIndex((cell) => cell.text === name),
  );
  const found = rows.map((row) => [row[user ?? -1]?.text, row[level ?? -1], row[score ?? -1]] as const);
  expect(found.toSorted(([, one], [, other]) => Number(one?.text) - Number(other?.text))).toEqual(
    Array.from({ length: 500 }, (_, index) => [`u-${index}`, numberCell(index), numberCell(index / 2)]),
  );

  const again = answersIn(await paste(`node ${program} init`, home, environment));
  expect(again).toMatchObject([{ isRunning: true, made: [], profile: 'default', apps: ['1'], users: ['1'] }]);
}

/** The profile that `make init` made. */
function readProfile(home: string): Required<Pick<Profile, 'idUser' | 'secret' | 'token'>> {
  const file = readFileSync(path.join(home, '.config/tributary/profiles.json'), 'utf8');
  return (JSON.parse(file) as { profiles: Record<'default', ReturnType<typeof readProfile>> }).profiles.default;
}

/** Creates a person from scratch, or with the previous service; `blocks` are to be pasted. */
async function begin(page: string, before: Person): Promise<{ person: Person; blocks: readonly string[] }> {
  const [first = '', ...others] = blocksOf(page, 'Quick start');
  expect(first.startsWith('make init\n')).toBe(true);
  if (isEachFromNothing) return { person: await createPerson(), blocks: [first, ...others] };
  return { person: before, blocks: [first.slice('make init\n'.length), ...others] };
}

/** Forwards requests to an import port; the first response is lost. */
async function startLossyProxy(importUrl: string): Promise<string> {
  let answers = 0;
  const proxy = createHttpServer((request, response) => {
    void (async () => {
      const { authorization = '', 'idempotency-key': key = '' } = request.headers;
      const headers = { authorization, 'idempotency-key': String(key) };
      const body = Buffer.concat(await request.toArray());
      const answer = await fetch(`${importUrl}${request.url}`, { method: 'POST', headers, body });
      answers += 1;
      if (answers === 1) response.destroy();
      else response.writeHead(answer.status).end(await answer.text());
    })();
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void proxy.close());
  await once(proxy, 'listening');
  return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
}

/** Sends through a proxy that loses a response: the two events are stored once. */
async function sendAndLoseAnAnswer({ home, environment }: Person): Promise<void> {
  const importUrl = await startLossyProxy(`http://127.0.0.1:${environment['TRIBUTARY_S2S_PORT']}`);
  const count = async (): Promise<unknown> => {
    const sql = `SELECT count(*)::INT AS events FROM custom_event WHERE custom_user_id = 'u-2'`;
    const [answer] = answersIn(await paste(`node ${program} query "${sql}"`, home, environment));
    return (answer as { events: number }).events;
  };
  await waitFor('the event of the page is in the lake', async () => (await count()) === 1);
  const { token } = readProfile(home);
  const settings = { TRIBUTARY_IMPORT_URL: importUrl, TRIBUTARY_APP: '1', TRIBUTARY_TOKEN: token };
  expect(await paste('node send.mjs', home, { ...environment, ...settings })).toBe('stored\n');
  await waitFor('the event is in the lake', async () => (await count()) !== 1);
  expect(await count()).toBe(2);
}

async function readSending(before: Person): Promise<void> {
  const page = 'docs/sending.md';
  const { person, blocks } = await begin(page, before);
  const [sender = ''] = blocksOf(page, 'Reliable client', 'js');
  writeFileSync(path.join(person.home, 'send.mjs'), sender);
  const printed = await person.pasteBlocks([
    ...blocks,
    ...blocksOf(page, 'Reliable client'),
    ...blocksOf(page, 'Debugging'),
  ]);
  expect(printed).toContain('\nstored\n');
  const answers = answersIn(printed);
  expect(answers.slice(isEachFromNothing ? 1 : 0)).toMatchObject([
    { message: 'Ok' },
    { state: expect.stringMatching(/^in_(?:stream|lake)$/) as string },
    { errors: [{ hint: 'write it in quotes' }, { pointer: '/age' }] },
    { refusals: expect.any(Array) as unknown[] },
  ]);
  if (isEachFromNothing) await sendAndLoseAnAnswer(person);
}

async function readExporting(before: Person): Promise<void> {
  const page = 'docs/exporting.md';
  const { person, blocks } = await begin(page, before);
  const { home, pasteBlocks } = person;
  expect(await pasteBlocks(blocks)).toMatch(/"stored":1000,"refused":0,[^]*\neventId,tsEvent,.*\n.*,u-\d+,\w+,/);
  // The script exports the last days: not the rows of 2015.
  const times = readFileSync(path.join(home, 'sample.csv'), 'utf8').trimEnd().split('\n').slice(1);
  const rows = times.filter((row) => Number(row.split(',')[1]) > 1_500_000_000).length;

  const { idUser, secret } = readProfile(home);
  const credentials = `USER_ID=${idUser}; SECRET=${secret}`;
  await pasteBlocks(['', credentials, ...blocksOf(page, 'By script')]);
  const files = readdirSync(home).filter((name) => /^\d.*\.csv$/.test(name));
  expect(files).toHaveLength(1);
  const table = readFileSync(path.join(home, files[0] ?? ''), 'utf8')
    .trimEnd()
    .split('\n');
  expect(table[0]).toBe('tsEvent,customUserId,eventName,params.name,params.value');
  expect(table.length - 1).toBe(rows);
}

async function readLake(before: Person): Promise<void> {
  const { person, blocks } = await begin('docs/lake.md', before);
  const [first = '', shell = ''] = blocks;
  const counted = /\{"custom_event_name":"level_up","events":"?(\d+)"?,"users":"?(\d+)"?\}/.exec(
    await person.pasteBlocks([first]),
  );
  expect(Number(counted?.[1])).toBeGreaterThanOrEqual(1000);
  expect(Number(counted?.[2])).toBeGreaterThanOrEqual(1000);
  const duckdb = isEachFromNothing ? await findDuckdbShell() : undefined;
  if (duckdb === undefined) return;
  const PATH = `${path.dirname(duckdb)}:${process.env['PATH'] ?? ''}`;
  expect(await paste(shell, person.home, { ...person.environment, PATH })).toMatch(/│ 1000 +│ +1 │/);
}

describe('the pages of people', { timeout: 300_000 }, () => {
  it('The commands of the README lead from a built program to a table, and those of the other pages to the documented results', async (ctx) => {
    const person = await createPerson();
    await readReadme(person);
    if (noCurl !== false) ctx.skip(noCurl);
    await readSending(person);
    await readExporting(person);
    await readLake(person);
    expect(await paste('make stop', packageRoot, person.environment)).toMatch(/\{"stopped":\d+,/);
    expect(readServiceStates(dataPaths(person.dataDir).run)).toEqual([]);
  });

  it('The commands of the pages on sending and exporting work as documented', async ({ skip }) => {
    inWholeRun(skip);
    const home = testFolder();
    const { service, token, user } = await startWithUser({ dataDir: path.join(home, 'data') });
    const bin = path.join(home, 'bin');
    mkdirSync(bin);
    writeFileSync(path.join(bin, 'tributary'), `#!/bin/sh\nexec node '${program}' "$@"\n`);
    chmodSync(path.join(bin, 'tributary'), 0o755);
    const environment = environmentOf(home, {
      PATH: `${bin}:${process.env['PATH'] ?? ''}`,
      TOKEN: token,
      SECRET: user.secret,
    });
    const names = ['level_up', 'other'];
    const lines = Array.from({ length: 1000 }, (_, index) => event(index, names[index % 2] ?? ''));
    writeFileSync(path.join(home, 'events.ndjson'), lines.join('\n'));
    const ownLines = 'user;event;time;level\nu-1;own;2026-05-29T10:00:00+02:00;3\nu-2;own;1780000000123;\n';
    writeFileSync(path.join(home, 'own.csv'), ownLines);
    const logins = ['u-1', 'u-2'].map((id) => JSON.stringify({ e: { user: { id } }, eventTimestamp: 1_780_000_000 }));
    writeFileSync(path.join(home, 'logins.ndjson.gz'), gzipSync(`${logins.join('\n')}\n`));
    writeFileSync(path.join(home, 'more.ndjson'), `${event(1, 'more')}\n`);
    const answers: unknown[] = [];
    for (const block of [
      ...blocksOf('docs/exporting.md', 'Profiles'),
      ...blocksOf('docs/sending.md', 'Files of events: tributary import'),
      ...blocksOf('docs/exporting.md', 'By command: tributary export'),
    ]) {
      const here = block
        .replaceAll('http://127.0.0.1:8080', service.s2s)
        .replaceAll('http://127.0.0.1:8081', service.api);
      answers.push(...answersIn(await paste(here, home, environment)));
    }
    const seconds = expect.stringMatching(/^\d{10}$/) as string;
    expect(answers).toMatchObject([
      { profile: 'shop', isCurrent: true },
      { profile: 'shop', hasToken: true, hasSecret: true },
      { file: 'events.ndjson', stored: 1000, refused: 0, lines: 1000 },
      { file: 'own.csv', stored: 2 },
      { file: 'logins.ndjson.gz', event: 'login', stored: 2 },
      { file: '-', stored: 1 },
      { idRawExport: '1', files: ['events.csv'], rows: 1003, timestampWatermark: seconds, timestampKeptUntil: seconds },
      { files: ['may.csv.gz'], rows: 500 },
      { rows: { atLeast: expect.any(Number) as number }, nextSinceVersion: expect.any(String) as string },
      { columns: ['eventId', 'tsEvent', 'idApp', 'customUserId', 'eventName', 'params.name', 'params.value'] },
      { idRawExport: '2' },
      { idRawExport: '1' },
      { rows: 1003 },
    ]);
    // An example of the console, with characters that are special in a shell or on the command line.
    const order = {
      event: 'customEvents',
      selectors: 'tsEvent,customUserId',
      dateFrom: '2026-05-28',
      dateTo: '2026-05-31',
      timezone: 'UTC',
      eventName: ['other', "it's $HOME", '--json'],
      order: 'time',
      columns: 'params',
      dialect: 'excel',
      format: 'csv',
      compression: 'gzip',
      name: "it's $HOME",
    };
    const written = makeSnippets(service.api, order, describeExportForm().formats).find(
      ({ name }) => name === 'Command line',
    );
    const asUser = { ...environment, USER_ID: user.idUser };
    expect(answersIn(await paste(written?.text ?? '', home, asUser))).toMatchObject([
      { files: ['customEvents.csv.gz'], rows: 500 },
    ]);
    const words = 'export customEvent --all --selectors eventId --app 1 --app 77 -o -';
    const whole = await paste(`tributary ${words} 2> noted | sort`, home, asUser);
    const own = readFileSync(path.join(home, 'events.csv'), 'utf8').split('\n');
    expect(whole.trim().split('\n')).toEqual(own.flatMap((line) => line.split(',')[0] || []).toSorted());
    expect(readdirSync(home).filter((name) => name.includes('stdout'))).toEqual([]);
    expect(readFileSync(path.join(home, 'noted'), 'utf8')).toMatch(/account has no app 77(?!.*app 1:)/s);
  });

  it('A client command without settings or permission ends with a hint', async () => {
    const home = testFolder();
    const fail = async (words: string, more: Readonly<Record<string, string>> = {}): Promise<string> => {
      const result = run(process.execPath, [program, ...words.split(' ')], {
        cwd: home,
        env: environmentOf(home, more),
      });
      return result.then(
        () => 'done',
        (error: unknown) => (error as { stderr: string }).stderr,
      );
    };
    expect(await fail('export list')).toMatch(/the URL of the export area is not set\. Set --url/);
    expect(await fail('import none.ndjson --url http://127.0.0.1:1 --app 1')).toMatch(/token of app 1 is not set/);
    expect(await fail('export launch')).toMatch(/the URL of the export area is not set/);
    expect(await fail('export customEvens')).toMatch(/did you mean .*customEvents/i);
    expect(await fail('export customEvents --to 2026-13-1', {})).toMatch(/--to must be a day/);
    expect(await fail('profile add a/b')).toMatch(/is not a profile name/);
  });
});
