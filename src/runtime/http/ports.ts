import { randomInt } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { createServer, type Server } from 'node:net';
import { AppError, isSystemError } from '../errors.ts';

/** A port, 0 for any free one, and its name in errors. */
interface WantedPort {
  readonly port: number;
  readonly what: string;
}

function open(host: string, port: number): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen({ host, port, exclusive: true }, () => resolve(server));
  });
}

function describeRefusal(host: string, { port, what }: WantedPort, error: Error): AppError {
  const inUse = isSystemError(error, 'EADDRINUSE');
  const hint = isSystemError(error, 'EADDRINUSE', 'EACCES')
    ? 'Choose another port, or 0 for any free one.'
    : 'Choose an address of this machine, such as 127.0.0.1 or 0.0.0.0.';
  const why = inUse ? 'is in use' : `cannot be used (${error.message})`;
  return new AppError('start_failed', `${what}: ${joinHostPort(host, port)} ${why}`, { hint, retryable: false });
}

async function listen(host: string, wanted: WantedPort): Promise<Server> {
  return open(host, wanted.port).catch((error: Error) => {
    throw describeRefusal(host, wanted, error);
  });
}

/** Resolves a host name to one address, IPv4 first: listening on a name would mean several addresses. */
export async function resolveHost(host: string): Promise<string> {
  try {
    const addresses = await lookup(host, { all: true });
    return (addresses.find(({ family }) => family === 4) ?? addresses[0])?.address ?? host;
  } catch (error) {
    throw new AppError('start_failed', `cannot resolve the host ${host}`, {
      cause: error,
      hint: 'Set an address of this machine, such as 127.0.0.1 or 0.0.0.0.',
    });
  }
}

/** Ports below the range of outgoing connections (32768 and up): a free one stays free until a child listens on it. */
const quietPorts = { first: 10_000, count: 22_000 } as const;
const quietTries = 20;

async function listenAnywhere(host: string, what: string): Promise<Server> {
  for (let tries = 0; tries < quietTries; tries += 1) {
    const port = quietPorts.first + randomInt(quietPorts.count);
    const server = await open(host, port).catch((error: Error) => {
      if (!isSystemError(error, 'EADDRINUSE', 'EACCES')) throw describeRefusal(host, { port, what }, error);
      return undefined;
    });
    if (server !== undefined) return server;
  }
  return listen(host, { port: 0, what });
}

/** Returns the port on which a server listens; 0 before it does. */
export function portOf(server: Server): number {
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** Chooses free ports to listen on, each only once; 0 means any. A restarted process returns to its address. */
export async function settlePorts(host: string, wanted: readonly WantedPort[]): Promise<number[]> {
  const servers: Server[] = [];
  try {
    // All are held until the last is chosen, so that none is chosen twice.
    for (const one of wanted) servers.push(await (one.port === 0 ? listenAnywhere(host, one.what) : listen(host, one)));
    return servers.map(portOf);
  } finally {
    await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  }
}

/** Returns the error of a server that cannot listen: `port_in_use` or `start_failed`. */
export function toListenError(error: unknown, host: string, port: number, hint: string): AppError {
  const code = isSystemError(error, 'EADDRINUSE') ? 'port_in_use' : 'start_failed';
  return new AppError(code, `cannot listen on ${joinHostPort(host, port)}`, { cause: error, retryable: false, hint });
}

function joinHostPort(host: string, port: number): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

export function httpAddress(host: string, port: number): string {
  return `http://${joinHostPort(host, port)}`;
}
