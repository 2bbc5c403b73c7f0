import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import path from 'node:path';
import { onTestFinished, vi } from 'vitest';
import { bucketSettings } from './bucket.ts';
import { testFolder } from './folder.ts';
import { startTestCluster, type TestCluster } from './nats-cluster.ts';
import { forwardTo, startS3Proxy, type S3Proxy } from './s3-proxy.ts';
import { runCommand, startTestService, type TestService } from './service.ts';

/** A network path of one host to one server, which can be cut. */
export interface Gate {
  readonly port: number;
  cut(): void;
  mend(): void;
}

/** Starts a path to a port of this machine, until the test ends. */
export async function startGate(port: number): Promise<Gate> {
  const sockets = new Set<Socket>();
  let isCut = false;
  const server = createServer((client) => {
    if (isCut) {
      client.destroy();
      return;
    }
    const other = connect(port, '127.0.0.1');
    for (const socket of [client, other]) {
      sockets.add(socket);
      socket.setNoDelay(true).on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        client.destroy();
        other.destroy();
      });
    }
    client.pipe(other).pipe(client);
  }).listen(0, '127.0.0.1');
  const cut = (): void => {
    isCut = true;
    for (const socket of sockets) socket.destroy();
  };
  onTestFinished(() => {
    cut();
    server.close();
  });
  await once(server, 'listening');
  return { port: (server.address() as AddressInfo).port, cut, mend: () => void (isCut = false) };
}

/** A host: a service of some roles on its own scratch folder, with its own network paths. */
export interface TestHost {
  readonly role: 'ingest' | 'compact' | 'export';
  readonly service: TestService;
  readonly s3: S3Proxy;
  readonly gates: readonly Gate[];
  /** Returns the time of its last commit of events (`performance.now()`). */
  committedAt(): number;
  /** Kills all processes, and starts again, on an empty folder if `isEmptied`. */
  restart(isEmptied: boolean): Promise<void>;
}

export interface TestHosts {
  readonly cluster: TestCluster;
  readonly hosts: readonly TestHost[];
  of(role: TestHost['role']): readonly TestHost[];
  /** Runs a command of the program on the shared state. */
  command(...words: readonly string[]): Promise<Record<string, unknown>>;
}

export interface TestHostsOptions {
  /** Address of the S3 server. */
  readonly endpoint: string;
  readonly credentials: { readonly accessKeyId: string; readonly secretAccessKey: string };
  readonly settings?: Readonly<Record<string, string>>;
  readonly hostsOfRole?: number;
  /** Ports of the areas of each host, which it keeps; free ones at each start by default. */
  readonly portsOf?: (role: TestHost['role'], number: number) => { readonly s2s: number; readonly api: number };
}

/** Starts a cluster of three nats-servers and hosts of each role. The end of the test ends them. */
export async function startTestHosts(options: TestHostsOptions): Promise<TestHosts> {
  const { endpoint, credentials, settings = {}, hostsOfRole = 2, portsOf } = options;
  const cluster = await startTestCluster();
  onTestFinished(() => cluster.stop());
  const access = {
    AWS_ACCESS_KEY_ID: credentials.accessKeyId,
    AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey,
  };
  for (const [name, value] of Object.entries(access)) vi.stubEnv(name, value);
  onTestFinished(() => void vi.unstubAllEnvs());
  const shared = { ...bucketSettings(endpoint), ...access, TRIBUTARY_NATS_URL: cluster.url, ...settings };
  const scratch = path.join(testFolder(), 'commands');
  const command = (...words: readonly string[]) => runCommand([...words, '--data', scratch], shared);

  async function startHost(role: TestHost['role'], number: number): Promise<TestHost> {
    const forward = forwardTo(endpoint);
    let committedAt = -Infinity;
    const s3 = await startS3Proxy(async (asked) => {
      const answer = await forward(asked);
      const isCommit =
        asked.method === 'PUT' && /\/events\/_delta_log\/\d{20}\.json$/.test(asked.url.split('?')[0] ?? '');
      if (isCommit && answer.status === 200) committedAt = performance.now();
      return answer;
    });
    const gates = await Promise.all(cluster.ports.map(startGate));
    const addresses = gates.map(({ port }) => `127.0.0.1:${port}`).join(',');
    const dataDir = path.join(testFolder(), `${role}-${number}`);
    const ports = portsOf?.(role, number);
    const words = ports === undefined ? [] : ['--s2s-port', String(ports.s2s), '--api-port', String(ports.api)];
    const service = await startTestService({
      dataDir,
      words: ['--role', role, ...words],
      settings: {
        ...shared,
        TRIBUTARY_S3_ENDPOINT: s3.endpoint,
        TRIBUTARY_NATS_URL: `nats://service:secret@${addresses}`,
      },
    });
    onTestFinished(() => service.destroy());
    return {
      role,
      service,
      s3,
      gates,
      committedAt: () => committedAt,
      async restart(isEmptied) {
        await service.killAll();
        if (isEmptied) rmSync(dataDir, { recursive: true, force: true });
        await service.startAgain();
      },
    };
  }

  const roles = ['ingest', 'compact', 'export'] as const;
  const wanted = roles.flatMap((role) => Array.from({ length: hostsOfRole }, (_, index) => [role, index] as const));
  const [first, ...others] = wanted;
  if (first === undefined) throw new Error('no host');
  // The first one creates the lake and the stream.
  const hosts = [await startHost(...first), ...(await Promise.all(others.map((one) => startHost(...one))))];
  return { cluster, hosts, of: (role) => hosts.filter((host) => host.role === role), command };
}
