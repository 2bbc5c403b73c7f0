import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, readdir } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';
import { pino } from 'pino';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { parseConfig } from '../../src/config.ts';
import { startService, type Service } from '../../src/service.ts';
import { aptStanza, hasApt, makeDebianArchive, makeEtc } from '../helpers/debian-archive.ts';
import { testFolder } from '../helpers/folder.ts';
import { natsBinary } from '../helpers/nats.ts';
import { within } from '../helpers/wait.ts';

/**
 * A start on a machine without a nats-server, as after an installation of the packed program: it fetches one, or says
 * what to do.
 */

const dist = path.resolve(import.meta.dirname, '../../dist');
const entry = path.join(dist, 'main.js');

/** Settings of a service in `folder`, whose PATH leads to no nats-server. */
const settingsIn = (folder: string) => ({
  PATH: path.join(folder, 'bin'),
  TRIBUTARY_CACHE_DIR: path.join(folder, 'cache'),
  TRIBUTARY_DATA_DIR: path.join(folder, 'data'),
});

/**
 * Starts the broker of a service in `folder`, and nothing else, on the machine that `etc` describes; its log lines are
 * added to `log`.
 */
async function startBroker(
  folder: string,
  etc: string,
  log: string[],
  signal = new AbortController().signal,
): Promise<Service> {
  // No role is started: nothing runs from the sources.
  const environment = settingsIn(folder);
  const logger = pino(
    { base: null, timestamp: false },
    { write: (line: string) => void log.push((JSON.parse(line) as { msg: string }).msg) },
  );
  return startService({ config: parseConfig(environment), roles: [], entry, environment, logger, signal, etc });
}

/** The last line of a start that fails. */
async function failToStart(folder: string, settings: Readonly<Record<string, string>>): Promise<string> {
  const environment = {
    ...settingsIn(folder),
    HOME: folder,
    TRIBUTARY_S2S_PORT: '0',
    TRIBUTARY_API_PORT: '0',
    TRIBUTARY_OPS_PORT: '0',
    ...settings,
  };
  return promisify(execFile)(process.execPath, [entry, 'start'], {
    env: environment,
    timeout: 50_000,
    killSignal: 'SIGKILL',
  }).then(
    () => 'it did not fail',
    ({ stderr }: { stderr: string }) => stderr.trim().split('\n').at(-1) ?? '',
  );
}

describe.runIf(hasApt)('a start without a nats-server, on Debian', () => {
  it('A start without a nats-server on Debian fetches one into the cache, logs it and runs it, and the next start finds it there', async () => {
    const folder = testFolder();
    const archive = await makeDebianArchive(folder, 'sid', `exec ${await natsBinary()} "$@"`);
    const etc = await makeEtc(folder, aptStanza(archive));
    const log: string[] = [];
    const fetching = `no nats-server of version 2.14 or newer here: fetching one with apt into ${folder}/cache`;
    for (const wanted of [[fetching, 'nats-server fetched'], []]) {
      log.length = 0;
      const service = await startBroker(folder, etc, log);
      await service.stop();
      expect(log.filter((line) => /fetch/.test(line))).toEqual(wanted);
    }
    expect(await readdir(path.join(folder, 'cache/nats-server'))).toHaveLength(1);
  });

  it('A start on Debian that is stopped while it fetches a nats-server ends then, and leaves nothing behind', async () => {
    const folder = testFolder();
    const temporary = path.join(folder, 'tmp');
    await mkdir(temporary);
    await chmod(folder, 0o755);
    vi.stubEnv('TMPDIR', temporary);
    // The machine's own apt may go by a proxy.
    for (const name of ['http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY']) vi.stubEnv(name, undefined);
    onTestFinished(() => void vi.unstubAllEnvs());
    // An archive that takes a request, and never answers.
    const server = createServer(() => undefined).listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const etc = await makeEtc(folder, aptStanza(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
    const stop = new AbortController();
    const outcome = startBroker(folder, etc, [], stop.signal).then(
      () => 'it started',
      (error: unknown) => error,
    );
    const [{ socket }] = await within('apt asks the archive', once(server, 'request') as Promise<[IncomingMessage]>);
    stop.abort();
    expect(await within('the start has ended', outcome)).toMatchObject({ code: 'stopping' });
    if (!socket.closed) await within('apt has ended', once(socket, 'close'));
    expect(await readdir(temporary)).toEqual([]);
    expect(await readdir(path.join(folder, 'cache/nats-server'))).toEqual([]);
  });
});

describe('a start without a nats-server, where none can be fetched', () => {
  it('A start where no nats-server can be fetched ends with one sentence that names the command to run', async () => {
    expect(await failToStart(testFolder(), {})).toMatch(
      /^tributary: no nats-server of version 2\.14 or newer on PATH.*\. Run .+, or set TRIBUTARY_NATS_URL to the address of a NATS server that has JetStream\.$/,
    );
  });

  it.runIf(hasApt)('A start without a cache folder ends with one sentence that names the setting', async () => {
    expect(await failToStart(testFolder(), { TRIBUTARY_CACHE_DIR: '/proc/cache' })).toMatch(
      /^tributary: no nats-server .* on PATH, and the folder to fetch one into cannot be written: .*\/proc\/cache.*\. Set TRIBUTARY_CACHE_DIR to a folder that this user may write to\.$/,
    );
  });
});
