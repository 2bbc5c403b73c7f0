import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { Agent, request } from 'node:http';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { inTurn, oneTestIn } from '../helpers/in-turn.ts';
import { readLog } from '../helpers/problems.ts';
import { isAlive, listTree, signalProcess } from '../helpers/processes.ts';
import { runCommand, startTestService, type TestService } from '../helpers/service.ts';
import { waitFor, within } from '../helpers/wait.ts';

const program = path.resolve(import.meta.dirname, '../../dist/main.js');
const root = temporaryFolder();
let folders = 0;

function start(settings: Readonly<Record<string, string>> = {}): Promise<TestService> {
  return startTestService({ dataDir: path.join(root, String((folders += 1))), settings });
}

/** Starts a service for one test. */
async function startOwn(settings: Readonly<Record<string, string>> = {}): Promise<TestService> {
  const service = await start(settings);
  onTestFinished(() => service.destroy());
  return service;
}

/** Reports whether a port refuses a new connection. */
const isRefused = (url: string): Promise<boolean> =>
  fetch(`${url}/healthz`, { headers: { connection: 'close' } }).then(
    () => false,
    () => true,
  );

describe('a running service', () => {
  let service: TestService;
  beforeAll(async () => {
    service = await start({ TRIBUTARY_INGEST_WORKERS: '2' });
  }, 180_000);
  afterAll(() => service.destroy());

  it('A running service has a process for each role', () => {
    expect(
      service
        .processes()
        .map(({ role }) => role)
        .toSorted(),
    ).toEqual(['compact', 'export', 'ingest', 'ingest', 'nats-server', 'supervisor']);
  });

  it('A running service loads the SQL engine only in processes that run queries', () => {
    const loads = service.processes().filter(({ pid }) => readFileSync(`/proc/${pid}/maps`, 'utf8').includes('duckdb'));
    expect(loads.map(({ role }) => role).toSorted()).toEqual(['compact', 'export']);
  });

  it('A running service bounds the freed memory that the compactor retains', () => {
    const pid = service.processes().find(({ role }) => role === 'compact')?.pid;
    expect(readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')).toContain('MALLOC_ARENA_MAX=2');
  });

  it('A second service on the same data folder is rejected, with the pid of the first', async () => {
    const second = runCommand(['start', '--data', service.dataDir, '--s2s-port', '0', '--api-port', '0']);
    await expect(second).rejects.toThrow(new RegExp(`in use by the tributary service \\(pid ${service.pid}\\)`));
  });

  it('The data folder of a running service is readable by its owner only', async () => {
    await service.command('app', 'add', '1', '--platform', 'web');
    await service.command('user', 'add', 'ann', '--account', '1');
    const open = readdirSync(service.dataDir, { recursive: true, withFileTypes: true })
      .map((entry) => path.join(entry.parentPath, entry.name))
      // Temporary files may be removed meanwhile.
      .filter((file) => ((statSync(file, { throwIfNoEntry: false })?.mode ?? 0) & 0o077) !== 0);
    expect(open).toEqual([]);
  });

  it.each(inTurn(['nats-server', 'ingest', 'compact', 'export'] as const, 2))(
    'A running service restarts %s when it is killed',
    async (role) => {
      const killed = await service.kill9(role, createRandom(1));
      expect(killed).toBeDefined();
      await waitFor(`another ${role} runs`, () => {
        const now = service.processes();
        return now.length === 6 && !now.some(({ pid }) => pid === killed);
      });
      await expect
        .poll(async () => (await fetch(`${service.api}/readyz`).catch(() => undefined))?.status, { timeout: 20_000 })
        .toBe(200);
    },
  );
});

describe('the service', () => {
  beforeEach(oneTestIn(2));

  it('A service whose supervisor is killed leaves nothing running and starts again on the same folder; on SIGTERM it drains, exits 0 and leaves no process', async () => {
    const service = await startOwn();
    const tree = listTree(service.pid);
    await service.kill9('supervisor', createRandom(1));
    await waitFor('every child has exited', () => !tree.some(isAlive));
    await service.startAgain();
    expect(service.processes()).toHaveLength(5);
    await service.stop();
    expect(isAlive(service.pid)).toBe(false);
  });

  it('A second signal forces the service to stop', async () => {
    const service = await startOwn();
    const tree = listTree(service.pid);
    signalProcess(service.pid, 'SIGSTOP');
    signalProcess(service.pid, 'SIGTERM');
    signalProcess(service.pid, 'SIGINT');
    signalProcess(service.pid, 'SIGCONT');
    await expect.poll(() => tree.filter(isAlive), { timeout: 20_000 }).toEqual([]);
  });

  it('A draining service is not ready and responds, until it is forced to stop', async () => {
    const service = await startOwn({ TRIBUTARY_DRAIN_MS: '60000' });
    const tree = listTree(service.pid);
    signalProcess(service.pid, 'SIGTERM');
    for (const url of [service.s2s, service.api, service.ops])
      await waitFor(`${url} is not ready`, async () => (await fetch(`${url}/readyz`)).status === 503);
    const version = await fetch(`${service.s2s}/v1/version`, { method: 'POST' });
    expect([version.status, version.headers.get('connection')]).toEqual([200, 'keep-alive']);
    expect(await (await fetch(`${service.ops}/readyz`)).json()).toMatchObject({ problems: [{ code: 'stopping' }] });
    signalProcess(service.pid, 'SIGTERM');
    await waitFor('every process has exited', () => !tree.some(isAlive));
  });

  it('When the ports of a draining service have closed, each kept connection gets one more response, and the service exits when all have ended', async () => {
    const service = await startOwn({ TRIBUTARY_DRAIN_MS: '5000' });
    const areas = [service.s2s, service.api];
    const agents = areas.map(() => new Agent({ keepAlive: true, maxSockets: 1 }));
    const ask = (index: number): Promise<unknown> =>
      new Promise((resolve, reject) => {
        const call = request(`${areas[index]}/healthz`, { agent: agents[index] }, (response) => {
          response.resume().once('end', () => resolve([response.statusCode, response.headers.connection]));
        });
        call.once('error', reject).end();
      });
    expect(await Promise.all([ask(0), ask(1)])).toEqual(areas.map(() => [200, 'keep-alive']));
    const tree = listTree(service.pid);
    signalProcess(service.pid, 'SIGTERM');
    for (const url of areas) await waitFor(`${url} refuses connections`, () => isRefused(url));
    expect(await Promise.all([ask(0), ask(1)])).toEqual(areas.map(() => [200, 'close']));
    await waitFor('every process has exited', () => !tree.some(isAlive));
  });

  it.each(inTurn(['nats', 'lake'], 2))(
    'A service that gets SIGTERM while it starts (as soon as %s/ exists) exits 0 and leaves no process',
    async (folder) => {
      const dataDir = path.join(root, `starting-${folder}`);
      const child = spawn(
        process.execPath,
        [program, 'start', '--data', dataDir, '--s2s-port', '0', '--api-port', '0'],
        { stdio: ['ignore', 'pipe', 'ignore'] },
      );
      await waitFor('the service starts', () => existsSync(path.join(dataDir, folder)));
      const tree = listTree(child.pid ?? 0);
      child.kill('SIGTERM');
      expect(await within('the service has stopped', once(child, 'exit'))).toEqual([0, null]);
      await waitFor('every process has exited', () => !tree.some(isAlive));
    },
  );

  it('A service stops without errors if all its processes get the signal, as from systemd', async () => {
    const service = await startOwn();
    const tree = listTree(service.pid);
    for (const pid of tree) signalProcess(pid, 'SIGTERM');
    await waitFor('every process has exited', () => !tree.some(isAlive));
    expect(readLog(service).filter(({ level }) => level === 'error')).toEqual([]);
    expect(readLog(service).at(-1)).toMatchObject({ msg: 'service stopped' });
  });

  it('A service keeps running when its log cannot be written', async () => {
    const full = openSync('/dev/full', 'w');
    const words = [program, 'start', '--data', path.join(root, 'no-log'), '--s2s-port', '0', '--api-port', '0'];
    const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', full] });
    closeSync(full);
    if (child.stdout === null) throw new Error('the service has no standard output');
    expect(String((await within('the service is ready', once(child.stdout, 'data')))[0])).toContain('"ready":true');
    child.kill('SIGTERM');
    expect(await within('the service has stopped', once(child, 'exit'))).toEqual([0, null]);
  });
});

/** Words of commands that fail, and what they say. */
const wrong: readonly (readonly [readonly string[], RegExp])[] = [
  [['start', '--role', 'everything'], /--role must be one of ingest, compact, export/],
  [['app', 'add', '0', '--platform', 'web'], /positive integer/],
  [['app', 'add', '1', '--platform', 'console'], /must be one of mobile-a/],
  [['user', 'add'], /Usage: tributary user add NAME/],
  [['app', 'add', '1', '--platform', 'web', '--colour', 'red'], /--colour/],
  [['app', 'add', '1', '--platform', 'web', '--data', ''], /--data has an empty value/],
  [['role', 'ingest'], /tributary start --role/],
  [
    ['start', '--s2s-port', '40017', '--api-port', '40017'],
    /api port \(TRIBUTARY_API_PORT\): 127\.0\.0\.1:40017 is in use\. Choose another port/,
  ],
  [['nothing'], /unknown command 'nothing'/],
];

describe('a command', () => {
  it.each(inTurn(wrong, 4))('The command %j fails with one sentence', async (words, sentence) => {
    const failed = await runCommand([
      ...words,
      ...(['nothing', 'role'].includes(words[0] ?? '') || words.includes('--data')
        ? []
        : ['--data', path.join(root, 'unused')]),
    ]).then(
      () => undefined,
      (error: unknown) => error as { code: number; stderr: string },
    );
    expect(failed?.code).toBe(1);
    expect(failed?.stderr).toMatch(sentence);
    expect(failed?.stderr.trim().split('\n')).toHaveLength(1);
  });
});
