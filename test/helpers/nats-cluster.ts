import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFile, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { openConnection } from '../../src/stream/connection.ts';
import { testFolder } from './folder.ts';
import { findFreePorts } from './free-ports.ts';
import { natsBinary, silentLogger } from './nats.ts';
import { waitFor } from './wait.ts';

/** A real cluster of nats-servers on loopback, each with its own store, which fsyncs before it acknowledges. */
export interface TestCluster {
  /** Addresses of all servers with the user of the service. */
  readonly url: string;
  /** The same with a user of the system account. */
  readonly systemUrl: string;
  /** Names of the servers, in the order of their ports. */
  readonly names: readonly string[];
  readonly ports: readonly number[];
  /** Returns the name of the server that leads a stream. */
  findLeader(streamName: string): Promise<string>;
  kill(name: string): Promise<void>;
  /** Stops a server without closing its connections, as a machine that hangs. */
  pause(name: string): void;
  resume(name: string): void;
  /** Starts a server; with `isUnsafe`, one that acknowledges before its fsync. */
  start(name: string, isUnsafe?: boolean): Promise<void>;
  stop(): Promise<void>;
}

interface ClusterOptions {
  readonly servers?: number;
  /** Servers that acknowledge before their fsync. */
  readonly unsafe?: readonly string[];
}

/** Starts a cluster, and waits until it has a leader. */
export async function startTestCluster({ servers = 3, unsafe = [] }: ClusterOptions = {}): Promise<TestCluster> {
  const binary = await natsBinary();
  const folder = testFolder();
  const ports = await findFreePorts(2 * servers);
  const names = Array.from({ length: servers }, (_, index) => `n${index + 1}`);
  const children = new Map<string, ChildProcess>();
  const addresses = ports.slice(0, servers).map((port) => `127.0.0.1:${port}`);
  const routes = ports.slice(servers).map((port) => `nats://127.0.0.1:${port}`);

  async function start(name: string, isUnsafe = unsafe.includes(name)): Promise<void> {
    const index = names.indexOf(name);
    const store = path.join(folder, name);
    await mkdir(store, { recursive: true });
    const file = path.join(folder, `${name}.conf`);
    const sync = isUnsafe ? '' : 'sync_interval: always';
    await writeFile(
      file,
      `server_name: ${name}
listen: 127.0.0.1:${ports[index]}
max_payload: 2MB
jetstream { store_dir: "${store}", max_file_store: 4GB, ${sync} }
cluster { name: test, no_advertise: true, listen: 127.0.0.1:${ports[servers + index]}, routes: [${routes.join(', ')}] }
accounts {
  SYS { users: [{ user: system, password: secret }] }
  APP { jetstream: enabled, users: [{ user: service, password: secret }] }
}
system_account: SYS
`,
    );
    children.set(name, spawn(binary, ['-c', file], { stdio: 'ignore' }));
  }

  for (const name of names) await start(name);
  const url = `nats://service:secret@${addresses.join(',')}`;
  await waitFor('the cluster has a leader', async () => {
    const connection = await openConnection({ url, name: 'test', logger: silentLogger }).catch(() => undefined);
    const response = await connection?.nats.request('$JS.API.INFO', '', { timeout: 1000 }).catch(() => undefined);
    await connection?.close();
    return response !== undefined && !response.string().includes('"error"');
  });

  async function findLeader(streamName: string): Promise<string> {
    let leader: string | undefined;
    const ask = async (): Promise<boolean> => {
      const connection = await openConnection({ url, name: 'test', logger: silentLogger }).catch(() => undefined);
      const subject = `$JS.API.STREAM.INFO.${streamName}`;
      const response = await connection?.nats.request(subject, '', { timeout: 500 }).catch(() => undefined);
      await connection?.close();
      leader = response?.json<{ readonly cluster?: { readonly leader?: string } }>().cluster?.leader;
      return leader !== undefined;
    };
    await waitFor('the stream has a leader', ask, 60_000);
    if (leader === undefined) throw new Error('unreachable');
    return leader;
  }

  async function kill(name: string): Promise<void> {
    const child = children.get(name);
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }

  return {
    url,
    systemUrl: `nats://system:secret@${addresses.join(',')}`,
    names,
    ports: ports.slice(0, servers),
    findLeader,
    kill,
    pause: (name) => void children.get(name)?.kill('SIGSTOP'),
    resume: (name) => void children.get(name)?.kill('SIGCONT'),
    start,
    async stop() {
      for (const name of names) await kill(name);
    },
  };
}
