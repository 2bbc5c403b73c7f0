import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { forkRole, type ForkOptions, type RoleChild } from '../../../src/runtime/processes/child.ts';
import { testFolder } from '../../helpers/folder.ts';
import { sendRaw } from '../../helpers/http.ts';
import { isAlive, isStopped, signalProcess } from '../../helpers/processes.ts';
import { waitFor, within } from '../../helpers/wait.ts';

let folder: string;
beforeEach(() => {
  folder = testFolder();
});

/** Forks a role whose program is this text; no process is left after the test. */
async function fork(program: string, given: Partial<ForkOptions> = {}): Promise<RoleChild> {
  const entry = path.join(folder, 'role.cjs');
  writeFileSync(
    entry,
    `require('node:fs').appendFileSync(${JSON.stringify(pidFile())}, process.pid + '\\n');\n${program}`,
  );
  onTestFinished(() => forked().forEach((pid) => void signalProcess(pid, 'SIGKILL')));
  return await forkRole({
    entry,
    name: 'x-1',
    role: 'x',
    environment: process.env,
    shared: false,
    readyMs: 30_000,
    signal: new AbortController().signal,
    onReport: () => undefined,
    onMetrics: () => undefined,
    ...given,
  });
}

const pidFile = (): string => path.join(folder, 'pids');

/** The processes forked so far, as they wrote themselves down. */
function forked(): number[] {
  const text = existsSync(pidFile()) ? readFileSync(pidFile(), 'utf8') : '';
  return [...text.matchAll(/^(\d+)\n/gm)].map(([, pid]) => Number(pid));
}

function standStill(pid: number): Promise<void> {
  signalProcess(pid, 'SIGSTOP');
  return waitFor('the child is stopped', () => isStopped(pid));
}

const exit = (child: RoleChild): Promise<unknown> => within('the child has exited', child.exited);

const stays = 'setInterval(() => undefined, 1000);';
const deafToStop = `process.on('SIGTERM', () => undefined); ${stays}`;

describe('a child that stalls', () => {
  const sends = 50;

  it('A stalled child does not accumulate messages, and gets the newest state once it resumes', async () => {
    const child = await fork(`
      let found = 0;
      process.on('message', ({ end }) => {
        if (end) process.exit(found);
        found += 1;
      });
      process.send({ type: 'ready' });`);
    await standStill(child.pid);
    // Larger than any message of the service, so that few fill the channel.
    const send = (message: object): void => child.send(message as never);
    const news = { text: 'x'.repeat(1024 * 1024) };
    for (let sent = 0; sent < sends; sent += 1) {
      send(news);
      await new Promise((resolve) => setImmediate(resolve));
    }
    signalProcess(child.pid, 'SIGCONT');
    const asking = setInterval(() => send({ end: true }), 20);
    onTestFinished(() => clearInterval(asking));
    const { code } = await within('the child has counted its news', child.exited);
    expect(code).toBeGreaterThan(0);
    expect(code).toBeLessThan(sends);
  });

  it('A stalled child is killed after the grace when it should stop', async () => {
    const child = await fork(`process.on('SIGTERM', () => process.exit(0)); process.send({ type: 'ready' }); ${stays}`);
    await standStill(child.pid);
    await within('the child has stopped', child.stop(100));
    expect(await exit(child)).toEqual({ code: null, signal: 'SIGKILL' });
  });

  it('A stalled child drains when it resumes within the grace', async () => {
    const child = await fork(`process.on('SIGTERM', () => process.exit(7)); process.send({ type: 'ready' }); ${stays}`);
    await standStill(child.pid);
    const stopping = child.stop(60_000);
    signalProcess(child.pid, 'SIGCONT');
    await within('the child has stopped', stopping);
    expect(await exit(child)).toEqual({ code: 7, signal: null });
  });
});

describe('a start that fails', () => {
  it.each([
    [
      'reports its error, and stays',
      `process.send({ type: 'failed', code: 'locked', message: 'in use' }); ${deafToStop}`,
      { code: 'locked', message: 'in use' },
      30_000,
    ],
    [
      'reports its error, and stalls',
      `process.send({ type: 'failed', code: 'locked', message: 'in use' }, () => process.kill(process.pid, 'SIGSTOP'));`,
      { code: 'locked' },
      30_000,
    ],
    [
      'says nothing in time',
      deafToStop,
      { code: 'start_failed', message: expect.stringContaining('not ready after') as string },
      1000,
    ],
    ['ends at once', 'process.exit(3);', { code: 'start_failed', message: 'x ended while starting (exit 3)' }, 30_000],
  ])('A failed start leaves no process of a child that %s', async (_, program, error, readyMs) => {
    await expect(within('the start has failed', fork(program, { readyMs }))).rejects.toMatchObject(error);
    expect(forked().filter(isAlive)).toEqual([]);
  });

  it('A start that is no longer wanted leaves no process of a stalled child', async () => {
    const unwanted = new AbortController();
    const starting = fork(deafToStop, { signal: unwanted.signal });
    await waitFor('the child runs', () => forked().length === 1);
    await standStill(forked()[0] ?? 0);
    unwanted.abort();
    await expect(within('the start has failed', starting)).rejects.toMatchObject({ code: 'stopping' });
    expect(forked().filter(isAlive)).toEqual([]);
  });
});

describe('children that share a port', () => {
  const requests = 20;
  const web = `require('node:http').createServer((_, response) => response.end('here')).listen(Number(process.env.PORT), '127.0.0.1', () => process.send({ type: 'ready' }));`;

  it('Children that share a port leave no connection without an answer or an end when one stalls and is killed', async () => {
    const port = await findFreePort();
    const start = (): Promise<RoleChild> =>
      fork(web, { shared: true, environment: { ...process.env, PORT: String(port) } });
    const [one, other] = [await start(), await start()];
    await standStill(one.pid);
    const ask = (): Promise<string> =>
      sendRaw(port, { verb: 'GET', path: '/', headers: {}, body: Buffer.of() }).then(
        (answer) => answer.body,
        () => 'ended',
      );
    const answers = Promise.all(Array.from({ length: requests }, ask));
    // each of them is with a worker, on its way to one, or waits to be accepted
    expect(await within('the worker that runs answers', ask())).toBe('here');
    one.kill();
    await exit(one);
    const known = await within('every connection has an answer or its end', answers);
    expect(known.filter((answer) => answer === 'here').length).toBeGreaterThan(0);
    other.kill();
    await exit(other);
  });
});

async function findFreePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => void server.close(resolve));
  return port;
}
