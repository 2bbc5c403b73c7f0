import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { settlePorts } from '../../src/runtime/http/ports.ts';
import { temporaryFolder, testFolder } from '../helpers/folder.ts';
import { oneTestIn } from '../helpers/in-turn.ts';
import { listServiceProcesses, listTree, isAlive, signalProcess } from '../helpers/processes.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { waitFor, within } from '../helpers/wait.ts';

beforeEach(oneTestIn(2));

/** Every start fails with one sentence or runs, and waits only for what it needs. */

const program = path.resolve(import.meta.dirname, '../../dist/main.js');
const root = temporaryFolder();
const services: TestService[] = [];

async function start(dataDir: string, ...words: readonly string[]): Promise<TestService> {
  const service = await startTestService({ dataDir, words });
  services.push(service);
  return service;
}

afterEach(async () => {
  for (const service of services.splice(0)) await service.destroy();
});

/**
 * Runs a program that fails and returns its standard error. One that does not exit is killed.
 */
async function fail(...words: readonly string[]): Promise<string> {
  return await promisify(execFile)(process.execPath, [program, ...words], {
    timeout: 50_000,
    killSignal: 'SIGKILL',
  }).then(
    () => 'it did not fail',
    ({ killed, stderr }: { killed: boolean; stderr: string }) => (killed ? `it did not end: ${stderr}` : stderr),
  );
}

describe('a start', () => {
  it('A start on a data folder that cannot be created ends with one sentence', async () => {
    expect(await fail('start', '--data', '/proc/tributary', '--s2s-port', '0', '--api-port', '0')).toMatch(
      /^tributary: cannot use the data folder \/proc\/tributary .*pass another folder with --data.*\n$/,
    );
    expect(await fail('app', 'add', '1', '--platform', 'web', '--data', '/proc/tributary')).toMatch(
      /^tributary: cannot use the data folder \/proc\/tributary .*\n$/,
    );
  });

  it('A start on a data folder with a named pipe in place of a file ends with one sentence', async () => {
    const dataDir = testFolder();
    execFileSync('mkfifo', [path.join(dataDir, 'access.json')]);
    expect(await fail('start', '--data', dataDir, '--s2s-port', '0', '--api-port', '0')).toMatch(
      /^tributary: .*access\.json is a named pipe.*\n$/,
    );
  });

  it('A start accepts events before the other roles are ready, and is ready when all are', async () => {
    const dataDir = path.join(root, 'side-by-side');
    mkdirSync(dataDir);
    const [port] = await settlePorts('127.0.0.1', [{ port: 0, what: 'import port' }]);
    const child = spawn(
      process.execPath,
      [program, 'start', '--data', dataDir, '--s2s-port', String(port), '--api-port', '0'],
      { stdio: ['ignore', 'pipe', 'ignore'] },
    );
    const pid = child.pid ?? 0;
    onTestFinished(() => listTree(pid).forEach((each) => void signalProcess(each, 'SIGKILL')));
    let isReady = false;
    const ready = once(createInterface({ input: child.stdout }), 'line').then(() => (isReady = true));
    // Held as if its start took long.
    const stopped = new Map<string, number>();
    await waitFor('the export and the compact role run', () => {
      for (const { role, pid: found } of listServiceProcesses(pid))
        if (['export', 'compact'].includes(role) && !stopped.has(role) && signalProcess(found, 'SIGSTOP'))
          stopped.set(role, found);
      return stopped.size === 2;
    });
    await waitFor(
      'import answers',
      () =>
        fetch(`http://127.0.0.1:${port}/v1/login/`, { method: 'POST' }).then(
          ({ status }) => status === 403,
          () => false,
        ),
      40_000,
    );
    expect(isReady).toBe(false);
    for (const held of stopped.values()) signalProcess(held, 'SIGCONT');
    await within('the service is ready', ready);
    const tree = listTree(pid);
    child.kill('SIGTERM');
    expect(await within('the service has stopped', once(child, 'exit'))).toEqual([0, null]);
    await waitFor('every process has exited', () => !tree.some(isAlive));
  });
});

describe('roles apart', () => {
  it('The export role runs alone without a broker, and together with a service of the other roles on the same folder', async () => {
    const dataDir = path.join(root, 'apart');
    const exporter = await start(dataDir, '--role', 'export');
    expect(
      exporter
        .processes()
        .map(({ role }) => role)
        .toSorted(),
    ).toEqual(['export', 'supervisor']);
    expect(existsSync(path.join(dataDir, 'nats'))).toBe(false);
    const isReady = async (): Promise<boolean> => (await fetch(`${exporter.api}/readyz`)).ok;
    expect(await isReady()).toBe(false);
    const problems: unknown = await (await fetch(`${exporter.ops}/readyz`)).json();
    expect(problems).toMatchObject({ ready: false, problems: [{ code: 'access_missing' }] });
    const others = await start(dataDir, '--role', 'ingest,compact');
    const { token } = await others.command('app', 'add', '1', '--platform', 'web');
    await waitFor('the export role is ready', isReady);
    const post = () =>
      fetch(`${others.s2s}/v1/login/?idApp=1`, {
        method: 'POST',
        headers: { authorization: String(token) },
        body: '{"customUserId":"u"}',
      });
    await waitFor('the app is effective', async () => (await post()).status === 200);
    await waitFor(
      'the event is in the lake',
      async () => (await readSnapshot(path.join(dataDir, 'lake', 'events'))).lake?.totals.stored === 1,
    );
    // The supervisors write their states every three seconds; the command fails while one has a problem.
    let status: unknown;
    await waitFor('no process has a problem', async () => {
      status = await others.command('status').catch(() => undefined);
      return status !== undefined;
    });
    expect(status).toMatchObject({ running: true, stream: { lagMessages: 0 }, problems: [] });
    expect((await fetch(`${exporter.api}/readyz`)).status).toBe(200);
    const backup = (): Promise<Record<string, unknown>> => exporter.command('backup', path.join(root, 'backup'));
    expect(await backup()).toMatchObject({ sequence: 1 });
    await others.stop();
    expect(await backup()).toMatchObject({ sequence: 1 });
    await exporter.stop();
  });

  it('The ingest role is rejected if the compactor has its own broker, with the setting to change', async () => {
    const dataDir = path.join(root, 'split');
    const first = await start(dataDir, '--role', 'compact');
    const said = await fail('start', '--role', 'ingest', '--data', dataDir, '--s2s-port', '0');
    expect(said).toMatch(
      new RegExp(
        `^tributary: ${dataDir} is in use by the tributary service \\(pid ${first.pid}\\)\\. .*set TRIBUTARY_NATS_URL of each to the same NATS server.*\\n$`,
      ),
    );
    await first.stop();
  });
});
