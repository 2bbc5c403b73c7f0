import { execFile, execFileSync } from 'node:child_process';
import {
  accessSync,
  chownSync,
  constants,
  cpSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { openConnection } from '../../src/stream/connection.ts';
import { basic, send, targetOf } from '../helpers/export-area.ts';
import { createExportClient, exportQuery } from '../helpers/export-client.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { inWholeRun } from '../helpers/in-turn.ts';
import { countLake } from '../helpers/ledger.ts';
import { natsBinary, silentLogger } from '../helpers/nats.ts';
import { addTestApp, addTestUser } from '../helpers/service-access.ts';
import { runCommand, startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

/**
 * Security of the files, the log and the ports of a used service. threats.md names the tests of each threat; the last
 * test checks that they exist.
 */

const random = createRandom(1);
const repository = path.resolve(import.meta.dirname, '../..');
const entry = path.join(repository, 'dist', 'main.js');
/** Names that would leave the folder if a path contained them. */
const hostileNames = [
  '../../../tmp/escaped',
  '/etc/cron.d/x',
  '..',
  'a/b\\c',
  '%2e%2e%2f',
  'name=x/date=1970-01-01',
  "'); DROP TABLE events; --",
  '\u202etxt.exe',
  'con',
  '$(touch /tmp/escaped)',
  '\n{"level":"fatal","msg":"forged"}\n',
];

/** Lists everything below a folder, and the folder itself. */
function walk(folder: string): string[] {
  return [folder, ...readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => path.join(folder, name))];
}

function port(url: string): number {
  return Number(new URL(url).port);
}

describe('a used service', () => {
  const folder = temporaryFolder();
  const dataDir = path.join(folder, 'data');
  /** Each secret: its spelling, and the files that may have it (paths below the data folder). */
  const canaries: { readonly what: string; readonly text: string; readonly home?: RegExp }[] = [];
  let service: TestService;
  let pids: number[] = [];

  const brokerFile = (): string => readFileSync(path.join(dataDir, 'nats', 'nats-server.conf'), 'utf8');
  const natsPort = (): number =>
    Number(
      /"natsUrl":"nats:\/\/[^"]*:(\d+)"/.exec(
        readFileSync(path.join(dataDir, 'run', `supervisor-${service.pid}.json`), 'utf8'),
      )?.[1],
    );

  beforeAll(async () => {
    const token = await addTestApp(dataDir);
    const spare = String((await runCommand(['app', 'token', '1', '--data', dataDir]))['token']);
    const user = await addTestUser(dataDir);
    // The most verbose level: secrets must be redacted, not filtered out by the level.
    service = await startTestService({
      dataDir,
      settings: {
        TRIBUTARY_LOG_LEVEL: 'trace',
        TRIBUTARY_SEAL_AGE_MS: '1000',
        TRIBUTARY_QUOTA_USER: 'off',
        TRIBUTARY_QUOTA_IP: 'off',
      },
    });
    canaries.push(
      { what: 'import token', text: token },
      { what: 'second import token', text: spare },
      { what: "user's secret", text: user.secret },
    );
    for (const password of [...brokerFile().matchAll(/password: "(\w+)"/g)].map(([, found]) => found ?? ''))
      canaries.push({
        what: 'broker password',
        text: password,
        home: /^(nats\/nats-server\.conf|run\/supervisor-\d+\.json)$/,
      });
    canaries.push({
      what: 'key of the secrets',
      text: readFileSync(path.join(dataDir, 'keys', 'secrets.key'), 'utf8').trim(),
      home: /^keys\/secrets\.key$/,
    });

    const importUrl = `/v1/customEvent/?idApp=1`;
    const post = (authorization: string, body: string): Promise<unknown> =>
      send(port(service.s2s), importUrl, { method: 'POST', headers: { authorization }, body });
    for (const [index, name] of hostileNames.entries()) {
      await post(
        index % 2 === 0 ? token : spare,
        JSON.stringify({ customUserId: name, customEventName: name, customEventParams: { [name]: name } }),
      );
      await post(`wrong-${token}`, '{}');
      await send(port(service.s2s), `/v1/customEvent/?idApp=1&token=${token}&authorization=${spare}`, {
        method: 'POST',
        headers: { authorization: token },
        body: '{"bad',
      });
    }
    await waitFor('the lake has every event', async () => (await countLake(dataDir)).length === hostileNames.length);
    await waitFor('they are sealed', () =>
      walk(path.join(dataDir, 'lake')).some((file) => /kind=custom_event\/date=[\d-]+\/[^/]+\.parquet$/.test(file)),
    );

    const client = createExportClient(service, user);
    const id = await client.create(exportQuery('eventName,customUserId'));
    const link = targetOf((await client.waitForEnd(id ?? '')).files?.[0]?.link ?? '');
    const signature = /signature=(\w+)/.exec(link)?.[1] ?? '';
    canaries.push({ what: "link's signature", text: signature });
    await runCommand(['key', 'rotate', '--data', dataDir]);
    for (const [, secret = ''] of readFileSync(path.join(dataDir, 'keys', 'links.json'), 'utf8').matchAll(
      /"secret":"(\w{64})"/g,
    ))
      canaries.push({ what: 'link key', text: secret, home: /^keys\/links\.json$/ });
    const sessionKey = readFileSync(path.join(dataDir, 'keys', 'sessions.key'), 'utf8').trim();
    canaries.push({ what: 'key of sessions', text: sessionKey, home: /^keys\/sessions\.key$/ });
    for (const secret of [user.secret, `${user.secret}x`]) {
      const body = JSON.stringify({ idUser: user.idUser, secret });
      const { headers } = await send(port(service.api), '/console/session', { method: 'POST', body });
      const [cookie = ''] = String(headers['set-cookie'] ?? '').split(';');
      if (cookie !== '') canaries.push({ what: 'cookie of a session', text: cookie.split('=')[1] ?? '' });
      await send(port(service.api), '/console/session', { headers: { cookie } });
    }
    for (const target of [
      link,
      `${link}0`,
      link.replace('/files/1/', '/files/%00/'),
      `/api/report/v1/file/get.json?idReportFile=1&secret=${user.secret}`,
      `/%?signature=${signature}`,
    ]) {
      for (const authorization of [basic(user), `Basic ${user.secret}`, `AuthHMAC 1:${user.secret}`, token]) {
        await send(port(service.api), target, { headers: { authorization } });
        await send(port(service.api), '/api/raw/v1/export/create.json', {
          method: 'POST',
          headers: { authorization },
          body: `event=${signature}&selectors=${user.secret}`,
        });
      }
    }
    // The Authorization header of Basic has the secret in another encoding.
    canaries.push({ what: 'Basic header', text: basic(user).slice('Basic '.length) });
    for (const role of ['ingest', 'export', 'compact', 'nats-server'] as const) {
      await service.kill9(role, random);
      await waitFor(`${role} is back`, () => service.processes().some((process) => process.role === role));
    }
    await waitFor(
      'events are taken again',
      async () =>
        (
          await send(port(service.s2s), importUrl, {
            method: 'POST',
            headers: { authorization: token },
            body: '{"customUserId":"u","customEventName":"after"}',
          }).catch(() => undefined)
        )?.status === 200,
    );
    for (const [, password = ''] of brokerFile().matchAll(/password: "(\w+)"/g))
      canaries.push({
        what: 'broker password',
        text: password,
        home: /^(nats\/nats-server\.conf|run\/supervisor-\d+\.json)$/,
      });
    pids = service.processes().map(({ pid }) => pid);
  }, 120_000);
  afterAll(() => service.destroy());

  it('A used service has every file and folder for its owner only (0600, 0700)', () => {
    const open = walk(dataDir).flatMap((name) => {
      // A temporary file may have been removed since it was listed.
      const stat = lstatSync(name, { throwIfNoEntry: false });
      const mode = (stat?.mode ?? 0) & 0o777;
      return (mode & 0o077) === 0 && (stat?.isDirectory() === true || (mode & 0o111) === 0)
        ? []
        : [`${path.relative(dataDir, name)} ${mode.toString(8)}`];
    });
    expect(open).toEqual([]);
  });

  it('A used service has created no file where the name of an event, a user or a parameter points', () => {
    const names = walk(dataDir).map((name) => path.relative(dataDir, name));
    expect(names.filter((name) => /escaped|cron|DROP|exe$|con$|[^\w.=$/%-]/.test(name))).toEqual([]);
    for (const name of names.filter((one) => one.startsWith('lake/events/') && one.endsWith('.parquet')))
      expect(name).toMatch(
        /^lake\/events\/((_sealed\/)?kind=(registration|login|custom_event)\/date=\d{4}-\d\d-\d\d|_young|_delta_log|empty)?\/?[\w.-]+\.parquet$/,
      );
    expect(existsSync('/tmp/escaped')).toBe(false);
  });

  it('A used service shows no secret in the list of processes', () => {
    const words = pids.map((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8')).join('\n');
    expect(words).toContain('nats-server.conf');
    expect(canaries.filter(({ text }) => words.includes(text)).map(({ what }) => what)).toEqual([]);
  });

  it('A used service has its broker on loopback only, and the broker rejects every caller without its credentials', async () => {
    const nats = service.processes().find(({ role }) => role === 'nats-server')?.pid ?? 0;
    const sockets = new Set(
      readdirSync(`/proc/${nats}/fd`).flatMap(
        (fd) => /socket:\[(\d+)\]/.exec(readlinkOf(`/proc/${nats}/fd/${fd}`))?.[1] ?? [],
      ),
    );
    const listening = ['tcp', 'tcp6'].flatMap((family) =>
      readFileSync(`/proc/net/${family}`, 'utf8')
        .split('\n')
        .slice(1)
        .map((line) => line.trim().split(/\s+/))
        .filter((columns) => columns[3] === '0A' && sockets.has(columns[9] ?? '')),
    );
    // 127.0.0.1 as this kernel writes it; only the client port, no monitoring port.
    expect(listening.map((columns) => columns[1]?.split(':')[0])).toEqual(['0100007F']);
    const url = `nats://127.0.0.1:${natsPort()}`;
    for (const signIn of [
      {},
      { user: 'tributary', password: 'wrong' },
      { user: 'system', password: '' },
      { user: 'system', password: 'wrong' },
    ]) {
      await expect(openConnection({ url, ...signIn, name: 'stranger', logger: silentLogger })).rejects.toMatchObject({
        code: 'broker_away',
      });
    }
  });

  it('A used service has no secret in its log or in any file but its own home, while it runs and after it has stopped', async () => {
    const search = (): string[] =>
      [...walk(dataDir), `${dataDir}.log`]
        .filter((name) => lstatSync(name, { throwIfNoEntry: false })?.isFile() === true)
        .flatMap((name) => {
          const bytes = readFileSync(name);
          const relative = path.relative(dataDir, name);
          return canaries
            .filter(({ text, home }) => bytes.includes(text) && home?.test(relative) !== true)
            .map(({ what }) => `${what} in ${relative}`);
        });
    expect(canaries.length).toBeGreaterThan(8);
    expect(canaries.filter(({ text }) => text.length < 32)).toEqual([]);
    expect(search()).toEqual([]);
    await service.stop();
    expect(search()).toEqual([]);
    expect(readdirSync(path.join(dataDir, 'run'))).toEqual([]);
  });

  it('A used service has a log in which clients cannot forge a line', () => {
    const lines = readFileSync(`${dataDir}.log`, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { level: string; msg: string; time: string });
    expect(lines.length).toBeGreaterThan(50);
    expect(lines.filter(({ msg, level, time }) => msg === 'forged' || level === 'fatal' || time === undefined)).toEqual(
      [],
    );
    expect(new Set(lines.map(({ level }) => level))).toContain('warn');
  });
});

function readlinkOf(name: string): string {
  try {
    return readlinkSync(name);
  } catch {
    return '';
  }
}

describe('an ordinary user', () => {
  const nobody = 65_534;

  it('An ordinary user runs the whole job, from import to the download of an export, without being root', async (context) => {
    inWholeRun(context.skip);
    if (process.getuid?.() !== 0) context.skip('the other tests run as an ordinary user already');
    const home = mkdtempSync(path.join(tmpdir(), 'tributary-nobody-'));
    onTestFinished(() => rmSync(home, { recursive: true, force: true }));
    const version = path.basename(path.dirname(await natsBinary()));
    cpSync(await natsBinary(), path.join(home, 'cache', 'nats-server', version, 'nats-server'));
    for (const name of walk(home)) chownSync(name, nobody, nobody);
    const who = { uid: nobody, gid: nobody, cwd: home };
    try {
      execFileSync(process.execPath, ['-e', 'require("node:fs").accessSync(process.argv[1])', entry], {
        ...who,
        stdio: 'ignore',
      });
      accessSync(entry, constants.R_OK);
    } catch {
      context.skip(`an ordinary user cannot read ${repository}`);
    }
    const environment = {
      PATH: process.env['PATH'],
      HOME: home,
      TMPDIR: home,
      TRIBUTARY_CACHE_DIR: path.join(home, 'cache'),
    };
    const { stdout } = await promisify(execFile)(process.execPath, [entry, 'demo', '--count', '100', '--seed', '1'], {
      ...who,
      env: environment,
    });
    expect(stdout).toMatch(/\b100\b/);
  }, 120_000);
});

describe('threats.md', () => {
  const rows = readFileSync(path.join(import.meta.dirname, 'threats.md'), 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('| ') && !line.startsWith('| threat') && !line.startsWith('|--'));

  it.each(rows)('A row of threats.md names a test that exists: %s', (row) => {
    const [, threat = '', cell = ''] = row.split(/ ?\| ?/);
    const named = [...cell.matchAll(/`([^`]+)`: ([^;|]+)/g)];
    expect(threat).not.toBe('');
    expect(named.length, 'the row names no test').toBeGreaterThan(0);
    for (const [, file = '', words = ''] of named)
      expect(readFileSync(path.join(repository, 'test', file), 'utf8'), file).toContain(words.trim());
  });

  it('The table in threats.md lists every threat', () => {
    expect(rows.length).toBeGreaterThanOrEqual(40);
  });
});
