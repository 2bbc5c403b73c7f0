import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import {
  findNatsServer,
  cacheFolder,
  type FoundNatsServer as FoundServer,
} from '../../src/nats-setup/ensure-nats-server.ts';
import { openConnection, type StreamConnection } from '../../src/stream/connection.ts';
import { startNatsServer, type NatsServer } from '../../src/stream/nats-server.ts';
import { ensureStream } from '../../src/stream/stream-admin.ts';
import { isStopped, signalProcess } from './processes.ts';
import { within } from './wait.ts';

const mebibyte = 1024 * 1024;
const moment = new Int32Array(new SharedArrayBuffer(4));

/** A logger that writes nothing. */
export const silentLogger = pino({ level: 'silent' });

/** A real nats-server for tests, in its own folder and on its own port. */
export interface TestNats {
  current(): NatsServer;
  readonly folder: string;
  /** Opens a connection with the server's credentials; closed when the server is stopped. */
  connect(): Promise<StreamConnection>;
  /** Kills the server with SIGKILL and waits until it has exited. */
  kill(): Promise<void>;
  /** Restarts it with the same store, port and credentials. */
  restart(): Promise<void>;
  signal(name: NodeJS.Signals): void;
  stop(): Promise<void>;
}

export interface TestNatsOptions {
  readonly maxStoreBytes?: number;
  /** Limit of the event stream; the stream is created unless this is `none`. */
  readonly streamMaxBytes?: number | 'none';
}

/** Found once per test process: each search runs the binary to read its version. */
let found: Promise<FoundServer | undefined> | undefined;

/** Returns the path of the nats-server that the tests run. */
export async function natsBinary(): Promise<string> {
  found ??= findNatsServer({ path: process.env['PATH'], cacheFolder: cacheFolder(process.env) });
  const server = await found;
  if (server === undefined) throw new Error("no nats-server: run 'make build' first");
  return server.binary;
}

/** Starts a server and creates the event stream in it. */
export async function startTestNats(options: TestNatsOptions = {}): Promise<TestNats> {
  const folder = await mkdtemp(path.join(tmpdir(), 'tributary-nats-'));
  const binary = await natsBinary();
  const maxStoreBytes = options.maxStoreBytes ?? 256 * mebibyte;
  const connections: StreamConnection[] = [];
  let server = await startNatsServer({ binary, folder, maxStoreBytes, logger: silentLogger });

  async function connect(): Promise<StreamConnection> {
    const { user, password } = server.address;
    const connection = await openConnection({ url: server.url, user, password, name: 'test', logger: silentLogger });
    connections.push(connection);
    return connection;
  }

  if (options.streamMaxBytes !== 'none') {
    const connection = await connect();
    await ensureStream(connection, { maxBytes: options.streamMaxBytes ?? 128 * mebibyte });
    await connection.close();
  }
  return {
    current: () => server,
    folder,
    connect,
    async kill() {
      server.kill();
      await within('nats-server has exited', server.exited);
    },
    async restart() {
      server = await startNatsServer({ binary, folder, maxStoreBytes, logger: silentLogger, address: server.address });
    },
    signal(name) {
      signalProcess(server.pid, name);
      if (name !== 'SIGSTOP') return;
      // On a busy machine it runs for another moment, and responds.
      while (!isStopped(server.pid)) Atomics.wait(moment, 0, 0, 1);
    },
    async stop() {
      for (const connection of connections) await connection.close();
      server.kill();
      await within('nats-server has exited', server.exited);
      await rm(folder, { recursive: true, force: true });
    },
  };
}
