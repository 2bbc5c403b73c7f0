import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, it, onTestFinished } from 'vitest';
import { acquireLock, waitForLock } from '../../../src/runtime/files/lock.ts';
import { openConnection } from '../../../src/stream/connection.ts';
import { openBrokerMonitor } from '../../../src/stream/broker-monitor.ts';
import { startNatsServer, type NatsServer, type NatsServerOptions } from '../../../src/stream/nats-server.ts';
import { bundleChild } from '../../helpers/bundled.ts';
import { natsBinary, silentLogger } from '../../helpers/nats.ts';
import { testFolder } from '../../helpers/folder.ts';
import { isAlive, signalProcess } from '../../helpers/processes.ts';
import { waitFor, within } from '../../helpers/wait.ts';

async function start(options: Partial<NatsServerOptions> = {}): Promise<{ server: NatsServer; folder: string }> {
  const folder = options.folder ?? testFolder();
  const server = await startNatsServer({
    binary: await natsBinary(),
    folder,
    maxStoreBytes: 64 * 1024 * 1024,
    logger: silentLogger,
    ...options,
  });
  onTestFinished(async () => {
    server.kill();
    await within('nats-server has exited', server.exited);
  });
  return { server, folder };
}

describe('the embedded nats-server', () => {
  it('The embedded nats-server is ready with JetStream that fsyncs before it acknowledges', async () => {
    const { server } = await start();
    expect(await server.monitor.readHealth(2000)).toEqual({ state: 'well' });
    expect(await server.monitor.readSyncAlways()).toBe(true);
  });

  it('The embedded nats-server listens on loopback only, and its configuration is readable by its owner only', async () => {
    const { server, folder } = await start();
    const config = path.join(folder, 'nats-server.conf');
    expect((await stat(config)).mode & 0o777).toBe(0o600);
    expect(server.url).toMatch(/^nats:\/\/127\.0\.0\.1:\d+$/);
    expect((await readFile(config, 'utf8')).match(/0\.0\.0\.0|\*/)).toBeNull();
  });

  it('The embedded nats-server refuses a client without its credentials, which differ from start to start', async () => {
    const first = await start();
    const second = await start();
    expect(first.server.address.password).not.toBe(second.server.address.password);
    await expect(
      openConnection({ url: first.server.url, name: 'stranger', logger: silentLogger }),
    ).rejects.toMatchObject({ code: 'broker_away' });
    const known = await openConnection({
      url: first.server.url,
      ...first.server.address,
      name: 'known',
      logger: silentLogger,
    });
    await known.close();
  });

  it('The embedded nats-server is found behind an unreachable one, by credentials in a list of servers', async () => {
    const { server } = await start();
    const { user, password, port } = server.address;
    const connection = await openConnection({
      url: `nats://127.0.0.1:1,nats://${user}:${password}@127.0.0.1:${port}`,
      name: 'of a cluster',
      logger: silentLogger,
    });
    expect(connection.isConnected()).toBe(true);
    await connection.close();
    await expect(
      openConnection({
        url: `nats://${user}:wrong@127.0.0.1:${port},nats://127.0.0.1:1`,
        name: 'stranger',
        logger: silentLogger,
      }),
    ).rejects.toMatchObject({
      code: 'broker_away',
      message: expect.not.stringContaining('wrong') as string,
    });
  });

  it('The embedded nats-server reports its state to its own supervisor only', async () => {
    const { server, folder } = await start();
    expect(await readFile(path.join(folder, 'nats-server.conf'), 'utf8')).not.toMatch(/^\s*(http|monitor)/m);
    const known = await openConnection({ url: server.url, ...server.address, name: 'known', logger: silentLogger });
    await expect(known.nats.request('$SYS.REQ.SERVER.PING.JSZ', '', { timeout: 500 })).rejects.toThrow('no responders');
    await known.close();
    await expect(openBrokerMonitor(server.address.port, server.address.password, silentLogger)).rejects.toMatchObject({
      code: 'broker_away',
    });
  });

  it('The embedded nats-server is unhealthy while it is stalled, and healthy again afterwards', async () => {
    const { server } = await start();
    signalProcess(server.pid, 'SIGSTOP');
    // The signal is on its way to each of the server's threads.
    await waitFor('it is silent', async () => (await server.monitor.readHealth(100)).state === 'silent');
    signalProcess(server.pid, 'SIGCONT');
    expect(await server.monitor.readHealth(5000)).toEqual({ state: 'well' });
  });

  it('The embedded nats-server returns with the same port and credentials when they are given', async () => {
    const { server, folder } = await start();
    server.kill();
    expect(await within('nats-server has exited', server.exited)).toMatchObject({ signal: 'SIGKILL' });
    const again = await start({ folder, address: server.address });
    expect(again.server.address).toEqual(server.address);
  });

  it('The embedded nats-server stops in order on request', async () => {
    const { server } = await start();
    await server.stop(10_000);
    expect(await within('nats-server has exited', server.exited)).toEqual({ code: 0, signal: null });
    expect(isAlive(server.pid)).toBe(false);
  });

  it('The embedded nats-server stops even when it is stalled', async () => {
    const { server } = await start();
    signalProcess(server.pid, 'SIGSTOP');
    await server.stop(100);
    expect(await within('nats-server has exited', server.exited)).toMatchObject({ signal: 'SIGKILL' });
  });

  it('An embedded nats-server that cannot start is reported with its own output', async () => {
    const { server } = await start();
    const taken = { ...server.address };
    await expect(start({ address: taken })).rejects.toMatchObject({
      code: 'start_failed',
      message: expect.stringContaining('address already in use') as string,
    });
  });

  it('An embedded nats-server whose store cannot be used is reported with what to check', async () => {
    const folder = testFolder();
    await writeFile(path.join(folder, 'store'), 'no folder');
    await expect(start({ folder })).rejects.toMatchObject({
      code: 'start_failed',
      hint: expect.stringContaining(`check that ${folder} can be read and written`) as string,
    });
  });

  it('An embedded nats-server whose binary is missing is reported with the name of the binary', async () => {
    await expect(start({ binary: '/nonexistent/nats-server' })).rejects.toMatchObject({ code: 'broker_missing' });
  });

  it('The embedded nats-server dies with its parent, and releases the lock of its folder, when the parent is killed with SIGKILL', async () => {
    const folder = testFolder();
    const program = bundleChild(testFolder(), 'nats-parent');
    const parent = spawn(process.execPath, [program, folder, await natsBinary()], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    onTestFinished(() => void parent.kill('SIGKILL'));
    const [line] = (await within(
      'the server of the parent is ready',
      once(createInterface({ input: parent.stdout }), 'line'),
    )) as [string];
    const pid = Number(line);
    expect(isAlive(pid)).toBe(true);
    expect(() => acquireLock(folder, 'another process')).toThrow(/in use by the parent/);

    // A stalled server cannot act on its own: the watcher has to end it.
    signalProcess(pid, 'SIGSTOP');
    parent.kill('SIGKILL');
    await waitFor('the server has exited', () => !isAlive(pid), 40_000);
    // its last thread may take a moment longer than its first
    (await waitForLock(folder, 'another process', 10_000)).release();
  });
});
