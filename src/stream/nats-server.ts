import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { stopChild, watchExit, type RunningChild } from '../runtime/processes/child.ts';
import { ensureFolder, findTextFile, removeFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import { assertExecutable } from '../runtime/files/file-checks.ts';
import { listNames } from '../runtime/files/folder-names.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { withAnySignal } from '../runtime/async/in-parallel.ts';
import { retry } from '../runtime/async/retry.ts';
import { openBrokerMonitor, systemUser, type BrokerMonitor } from './broker-monitor.ts';
import { describeSupervisor, supervisorVariable } from './store-files.ts';
import { restoreStreamMetadata } from './stream-metadata-backup.ts';

/** Address and credentials of an embedded server; the next start may keep them. */
export interface NatsAddress {
  readonly port: number;
  readonly user: string;
  readonly password: string;
}

export interface NatsServerOptions {
  readonly binary: string;
  /** Folder of the configuration and the store, created if missing. */
  readonly folder: string;
  /** Address of an earlier start; absent for a free port and new credentials. */
  readonly address?: NatsAddress;
  /** Descriptors of the locks of its folders: the server inherits them and keeps the locks. */
  readonly lockFds?: readonly number[];
  /** Most bytes of JetStream; the stream's limit must fit in it. */
  readonly maxStoreBytes: number;
  /** Time until JetStream is ready, ms [60 000]; a large store takes long. */
  readonly readyMs?: number;
  readonly signal?: AbortSignal;
  readonly logger: Logger;
}

export interface NatsServer extends RunningChild {
  readonly url: string;
  readonly address: NatsAddress;
  readonly monitor: BrokerMonitor;
}

/**
 * Runs nats-server with a watcher that kills it when this process ends, which closes the pipe at descriptor 3. A line
 * in the pipe reports that the server has ended first. The watcher closes the inherited locks (4, 5), so that only the
 * server holds them.
 */
const launcher = `
export ${supervisorVariable}="$1"
shift
(exec 4>&- 5>&- >/dev/null 2>&1; read -r line <&3 || kill -9 $$) &
exec 3<&-
exec "$@"
`;

function renderConfig(options: NatsServerOptions, address: NatsAddress, systemPassword: string): string {
  const text = JSON.stringify;
  return [
    `server_name: "tributary"`,
    `listen: ${text(`127.0.0.1:${address.port === 0 ? -1 : address.port}`)}`,
    // Relative to the working folder: a data folder does not contain its own path.
    `ports_file_dir: "."`,
    `logtime: false`,
    // The default account has the stream; the system account shows the server's health.
    `authorization { users: [ { user: ${text(address.user)}, password: ${text(address.password)} } ] }`,
    `accounts { $SYS { users: [ { user: ${text(systemUser)}, password: ${text(systemPassword)} } ] } }`,
    `jetstream {`,
    `  store_dir: "store"`,
    // Fsyncs each message before its PubAck; the default is every two minutes.
    `  sync_interval: always`,
    `  max_file_store: ${options.maxStoreBytes}`,
    `  max_memory_store: 67108864`,
    `}`,
    '',
  ].join('\n');
}

/** Log line of a server that has read its store and listens; JetStream may still be unhealthy. */
const listensLine = 'Server is ready';
/** Time from that line to a healthy server, ms: what is missing then, such as a stream, needs a restart. */
const listenedMs = 10_000;

/** Forwards the server's log; keeps its last lines for the error of a failed start. */
function forwardLog(child: ChildProcess, logger: Logger, onListens: () => void): { lastLines(): string } {
  const last: string[] = [];
  if (child.stderr !== null) {
    createInterface({ input: child.stderr }).on('line', (line) => {
      const { level = 'INF', text = line } = /^\[\d+\] \[(?<level>[A-Z]{3})\] (?<text>.*)$/.exec(line)?.groups ?? {};
      if (last.push(text) > 5) last.shift();
      if (text.startsWith(listensLine)) onListens();
      // The password is random, in a file that only its owner reads.
      if (text.startsWith('Plaintext passwords detected')) return;
      if (level === 'ERR' || level === 'FTL') logger.error({ line: text }, 'nats-server error');
      else if (level === 'WRN') logger.warn({ line: text }, 'nats-server warning');
      else logger.debug({ line: text }, 'nats-server');
    });
  }
  return { lastLines: () => last.join(' | ') };
}

/** Reads the port from the server's file, which is named after its process id; the launcher's `exec` keeps that id. */
async function readPort(folder: string, pid: number): Promise<number> {
  const name = (await listNames(folder)).find((entry) => entry.endsWith(`_${pid}.ports`));
  const text = name === undefined ? undefined : await findTextFile(path.join(folder, name));
  if (text === undefined || text === '') throw new AppError('broker_away', 'nats-server has not opened its port yet');
  const { nats } = membersOf(JSON.parse(text));
  return Number(new URL(Array.isArray(nats) ? String(nats[0]) : '').port);
}

/** Removes an earlier server's files, and repairs what its kill has interrupted. */
async function prepareFolder({ folder, logger }: NatsServerOptions): Promise<void> {
  await ensureFolder(folder);
  for (const entry of await listNames(folder)) if (entry.endsWith('.ports')) await removeFile(path.join(folder, entry));
  await restoreStreamMetadata(folder, logger);
}

async function waitUntilReady(
  options: NatsServerOptions,
  pid: number,
  systemPassword: string,
  ended: AbortSignal,
): Promise<{ port: number; monitor: BrokerMonitor }> {
  async function attempt(): Promise<{ port: number; monitor: BrokerMonitor }> {
    const port = await readPort(options.folder, pid);
    const monitor = await openBrokerMonitor(port, systemPassword, options.logger);
    if ((await monitor.readHealth(2000)).state === 'well') return { port, monitor };
    await monitor.close();
    throw new AppError('broker_away', 'JetStream is not ready yet');
  }
  return await withAnySignal(options.signal === undefined ? [ended] : [ended, options.signal], (signal) =>
    retry(attempt, { forMs: options.readyMs ?? 60_000, everyMs: 20, signal }),
  );
}

/**
 * Starts nats-server as a child on loopback and waits until JetStream is ready. Errors: `broker_missing`,
 * `start_failed`, `broker_unsafe` (it would acknowledge before the fsync), `stopping`; no process is left then.
 */
export async function startNatsServer(options: NatsServerOptions): Promise<NatsServer> {
  await prepareFolder(options);
  const address = options.address ?? { port: 0, user: 'tributary', password: randomBytes(24).toString('hex') };
  const configFile = path.join(options.folder, 'nats-server.conf');
  const systemPassword = randomBytes(24).toString('hex');
  await writeFileDurably(configFile, renderConfig(options, address, systemPassword));
  await assertExecutable(options.binary).catch((error: unknown) => {
    throw new AppError('broker_missing', `cannot run ${options.binary}`, {
      cause: error,
      hint: "Check that it exists and is executable; 'tributary setup' downloads one if none is found.",
    });
  });

  const command = [path.resolve(options.binary), '-c', path.resolve(configFile)];
  const child = spawn('/bin/sh', ['-c', launcher, 'nats-launcher', describeSupervisor(), ...command], {
    // A separate process group: Ctrl-C must reach the service only, which drains before it stops the server.
    detached: true,
    cwd: options.folder,
    stdio: ['ignore', 'ignore', 'pipe', 'pipe', ...(options.lockFds ?? [])],
  });
  const exited = watchExit(child);
  const lifeline = child.stdio[3];
  const ended = new AbortController();
  const log = forwardLog(child, options.logger, () => void setTimeout(() => ended.abort(), listenedMs).unref());
  void exited.then(() => {
    ended.abort();
    if (lifeline !== null && lifeline !== undefined && 'end' in lifeline) lifeline.end('ended\n');
  });
  lifeline?.on('error', () => undefined);

  try {
    const { port, monitor } = await waitUntilReady(options, child.pid ?? 0, systemPassword, ended.signal);
    void exited.then(() => monitor.close());
    if (!(await monitor.readSyncAlways())) {
      throw new AppError('broker_unsafe', 'nats-server acknowledges messages before they are on the disk', {
        hint: 'Use nats-server 2.14 or newer, without your own configuration.',
      });
    }
    return {
      pid: child.pid ?? 0,
      url: `nats://127.0.0.1:${port}`,
      address: { ...address, port },
      monitor,
      exited,
      stop(graceMs) {
        // First, so that a stop is not logged as a lost connection. Not awaited: the server may be stalled.
        void monitor.close();
        return stopChild(child, exited, graceMs);
      },
      kill: () => void child.kill('SIGKILL'),
    };
  } catch (error) {
    child.kill('SIGKILL');
    await exited;
    if (isAppError(error, 'broker_unsafe')) throw error;
    if (options.signal?.aborted === true) throw new AppError('stopping', 'nats-server was stopped while it started');
    throw new AppError('start_failed', `nats-server did not start: ${log.lastLines() || 'no output'}`, {
      cause: error,
      hint: `If this is about its store, check that ${options.folder} can be read and written and that its disk has free space; restore a damaged store from a backup.`,
    });
  }
}
