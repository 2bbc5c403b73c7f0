import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { stopChild, watchExit, type RunningChild } from '../runtime/processes/child.ts';
import { ensureFolder, findTextFile, removeFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { assertExecutable } from '../runtime/files/file-checks.ts';
import { listNames } from '../runtime/files/folder-names.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { retry } from '../runtime/async/retry.ts';
import { openBrokerMonitor, systemUser, type BrokerMonitor } from './broker-monitor.ts';
import { describeSupervisor, supervisorVariable } from './store-files.ts';
import { settleDescriptions } from './stream-descriptions.ts';

/** How a client reaches an embedded server; passing it to the next start keeps address and credentials the same. */
export interface NatsAddress {
  readonly port: number;
  readonly user: string;
  readonly password: string;
}

export interface NatsServerOptions {
  /** Path of the nats-server binary, 2.14 or newer. */
  readonly binary: string;
  /** The server's own folder: configuration, store. Created when missing. */
  readonly folder: string;
  /** Address and credentials of an earlier start; without them a free port and new credentials are taken. */
  readonly address?: NatsAddress;
  /**
   * Descriptors of the locks of the folders that it works in: the server inherits them, so the locks live as long as it
   * does.
   */
  readonly lockFds?: readonly number[];
  /** Most bytes that JetStream may store: the stream's limit must fit in it. */
  readonly maxStoreBytes: number;
  /** How long it may take until JetStream is ready, milliseconds; a large store takes longer. Default 60 000. */
  readonly readyMs?: number;
  /** Aborted when the start is no longer wanted. */
  readonly signal?: AbortSignal;
  readonly logger: Logger;
}

/** A running embedded server. */
export interface NatsServer extends RunningChild {
  readonly url: string;
  readonly address: NatsAddress;
  /** Shows the server's health, for as long as it runs. */
  readonly monitor: BrokerMonitor;
}

/**
 * Runs nats-server so that it cannot outlive the service. The watcher reads descriptor 3, a pipe whose other end only
 * this process holds: when this process is gone, however it ended, the read ends and the watcher kills the server. A
 * line in the pipe means that the server ended first and the watcher may go. It closes the inherited locks (4, 5), so
 * that the server alone holds them.
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
    // Relative to the folder, in which the server runs: nothing in a data folder names its own place.
    `ports_file_dir: "."`,
    `logtime: false`,
    // In the server's default account, where the stream is. The system account only shows the server's health.
    `authorization { users: [ { user: ${text(address.user)}, password: ${text(address.password)} } ] }`,
    `accounts { $SYS { users: [ { user: ${text(systemUser)}, password: ${text(systemPassword)} } ] } }`,
    `jetstream {`,
    `  store_dir: "store"`,
    // Every acknowledged message is on the disk before its PubAck leaves; the default would sync every two minutes.
    `  sync_interval: always`,
    `  max_file_store: ${options.maxStoreBytes}`,
    `  max_memory_store: 67108864`,
    `}`,
    '',
  ].join('\n');
}

/** What a server says of itself once it has read its store and listens; whether JetStream is well is another matter. */
const listensLine = 'Server is ready';
/**
 * How long a server that listens may take to be well, milliseconds: its store is read by then, and what is missing now,
 * the file of its port or a stream, say, stays missing until it is started again.
 */
const listenedMs = 10_000;

/** Passes the server's own log on; keeps its last lines for the error of a failed start. */
function forwardLog(child: ChildProcess, logger: Logger, onListens: () => void): { lastLines(): string } {
  const last: string[] = [];
  if (child.stderr !== null) {
    createInterface({ input: child.stderr }).on('line', (line) => {
      const { level = 'INF', text = line } = /^\[\d+\] \[(?<level>[A-Z]{3})\] (?<text>.*)$/.exec(line)?.groups ?? {};
      if (last.push(text) > 5) last.shift();
      if (text.startsWith(listensLine)) onListens();
      // Said of every password that is not hashed; ours is random, in a file that only its owner reads.
      if (text.startsWith('Plaintext passwords detected')) return;
      if (level === 'ERR' || level === 'FTL') logger.error({ line: text }, 'nats-server error');
      else if (level === 'WRN') logger.warn({ line: text }, 'nats-server warning');
      else logger.debug({ line: text }, 'nats-server');
    });
  }
  return { lastLines: () => last.join(' | ') };
}

/** The server writes the port it took into a file named after its process id; the launcher's `exec` keeps that id. */
async function readPort(folder: string, pid: number): Promise<number> {
  const name = (await listNames(folder)).find((entry) => entry.endsWith(`_${pid}.ports`));
  const text = name === undefined ? undefined : await findTextFile(path.join(folder, name));
  if (text === undefined || text === '') throw new AppError('broker_away', 'nats-server has not opened its port yet');
  const ports = JSON.parse(text) as { nats: string[] };
  return Number(new URL(ports.nats[0] ?? '').port);
}

/** Clears what an earlier server left in the folder, and mends what its kill has cut off. */
async function prepareFolder({ folder, logger }: NatsServerOptions): Promise<void> {
  await ensureFolder(folder);
  for (const entry of await listNames(folder)) {
    if (entry.endsWith('.ports')) await removeFile(path.join(folder, entry));
  }
  await settleDescriptions(folder, logger);
}

async function waitUntilReady(
  options: NatsServerOptions,
  pid: number,
  systemPassword: string,
  ended: AbortSignal,
): Promise<{ port: number; monitor: BrokerMonitor }> {
  return await retry(
    async () => {
      const port = await readPort(options.folder, pid);
      const monitor = await openBrokerMonitor(port, systemPassword, options.logger);
      if ((await monitor.readHealth(2000)).state === 'well') return { port, monitor };
      await monitor.close();
      throw new AppError('broker_away', 'JetStream is not ready yet');
    },
    {
      forMs: options.readyMs ?? 60_000,
      everyMs: 20,
      signal: options.signal === undefined ? ended : AbortSignal.any([ended, options.signal]),
    },
  );
}

/**
 * Starts nats-server as a child on loopback, with its own credentials, and waits until JetStream is ready. Errors:
 * `broker_missing` (no such binary), `start_failed` (with the server's last words), `broker_unsafe` (it would
 * acknowledge before the fsync), `stopping` (the signal aborted first); no process is left behind then.
 */
export async function startNatsServer(options: NatsServerOptions): Promise<NatsServer> {
  await prepareFolder(options);
  const address = options.address ?? { port: 0, user: 'tributary', password: randomBytes(24).toString('hex') };
  const configFile = path.join(options.folder, 'nats-server.conf');
  // Only this process is the system user: nobody else knows its password.
  const systemPassword = randomBytes(24).toString('hex');
  await writeFileDurably(configFile, renderConfig(options, address, systemPassword));
  await assertExecutable(options.binary).catch((error: unknown) => {
    throw new AppError('broker_missing', `cannot run ${options.binary}`, {
      cause: error,
      hint: "See that it is there and executable; 'tributary setup' fetches one where none is found.",
    });
  });

  // Its own process group: Ctrl-C in a terminal must reach the service only, which drains before it stops the server.
  const child = spawn(
    '/bin/sh',
    [
      '-c',
      launcher,
      'nats-launcher',
      describeSupervisor(),
      path.resolve(options.binary),
      '-c',
      path.resolve(configFile),
    ],
    {
      detached: true,
      cwd: options.folder,
      stdio: ['ignore', 'ignore', 'pipe', 'pipe', ...(options.lockFds ?? [])],
    },
  );
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
        hint: 'Use nats-server 2.14 or newer, and no configuration of your own.',
      });
    }
    return {
      pid: child.pid ?? 0,
      url: `nats://127.0.0.1:${port}`,
      address: { ...address, port },
      monitor,
      exited,
      stop(graceMs) {
        // First, so that a stop is not logged as a lost connection; not waited for, since the server may be stalled.
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
      hint: `If these words are about its store: see whether ${options.folder} can be read and written and its disk has room; a damaged store is to be restored from a copy.`,
    });
  }
}
