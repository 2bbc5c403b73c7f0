import { connect, type Socket } from 'node:net';
import type { Random } from '../../src/demo/random.ts';

/** Targets of the crowd. */
export interface CrowdTargets {
  /** Port of the import area, and of the export area. */
  readonly s2sPort: number;
  readonly apiPort: number;
  /** Path of an import method with the app's id, and the app's token. */
  readonly importPath: string;
  readonly token: string;
  /** Path and query of a signed link, to a file larger than all socket buffers. */
  readonly link: string;
}

/** Clients that misbehave, each on its own connection, repeatedly. */
export interface HostileCrowd {
  /** Returns the number of connections, and of those that the service has closed. */
  connections(): number;
  closedByService(): number;
  /** Ends every connection, and opens no new ones. */
  stop(): void;
}

const dripMs = 50;
const pipelined = 200;
const event = '{"customUserId":"hostile"}';

/** Behaviour of one kind of client on its connection; `drip` writes the next byte of a text from time to time. */
type Behaviour = (socket: Socket, targets: CrowdTargets, drip: (text: string) => void) => void;

const post = ({ importPath, token }: CrowdTargets, headers: string): string =>
  `POST ${importPath} HTTP/1.1\r\nHost: a\r\nAuthorization: ${token}\r\n${headers}\r\n`;
const wrongPost = (targets: CrowdTargets, headers: string): string => post({ ...targets, token: 'wrong' }, headers);

/** None of them stores an event: heads are truncated, tokens are wrong, bodies are too large. */
const behaviours: Readonly<Record<string, Behaviour>> = {
  silent: () => undefined,
  slowHead: (_socket, targets, drip) => drip(wrongPost(targets, `X: ${'x'.repeat(10_000)}\r\nContent-Length: 5\r\n`)),
  slowBody(socket, targets, drip) {
    socket.write(post(targets, 'Content-Length: 10240\r\n'));
    drip(' '.repeat(10_239));
  },
  neverFinished: (socket, targets) => void socket.write(`${post(targets, 'Content-Length: 100\r\n')}${event}`),
  neverEndingChunks(socket, targets, drip) {
    socket.write(post(targets, 'Transfer-Encoding: chunked\r\n'));
    drip('1\r\n \r\n'.repeat(2000));
  },
  halfOpen: (socket, targets) => void socket.end(`${post(targets, 'Content-Length: 100\r\n')}${event}`),
  readsNothing(socket, targets) {
    socket.pause();
    const one = `${wrongPost(targets, `Content-Length: ${event.length}\r\n`)}${event}`;
    socket.write(one.repeat(pipelined));
  },
  slowReader(socket, targets) {
    socket.pause();
    socket.write(`GET ${targets.link} HTTP/1.1\r\nHost: a\r\n\r\n`);
  },
  // In pieces no faster than the drip: at full speed it would test the machine's loopback.
  largeBody(socket, targets) {
    socket.write(post(targets, 'Content-Length: 10000000\r\n'));
    const pour = setInterval(() => void (socket.writable && socket.write('x'.repeat(16_384))), dripMs);
    socket.once('close', () => clearInterval(pour));
  },
  comesAndGoes: (socket) => void socket.once('connect', () => void setTimeout(() => socket.destroy(), dripMs)),
};

/** Starts the crowd: `each` clients of every kind at either area. A client reconnects at once. */
export function startHostileCrowd(targets: CrowdTargets, each: number, random: Random): HostileCrowd {
  const sockets = new Set<Socket>();
  const drips = new Map<Socket, string>();
  const counts = { connections: 0, closed: 0 };
  let stopped = false;

  function come(port: number, behave: Behaviour): void {
    if (stopped) return;
    const socket = connect(port, '127.0.0.1');
    counts.connections += 1;
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('data', () => undefined);
    socket.once('connect', () => behave(socket, targets, (text) => void drips.set(socket, text)));
    socket.once('close', () => {
      sockets.delete(socket);
      drips.delete(socket);
      if (!stopped) counts.closed += 1;
      setTimeout(() => come(port, behave), random.integer(dripMs, dripMs * 10));
    });
  }

  const timer = setInterval(() => {
    for (const [socket, text] of drips) {
      socket.write(text.slice(0, 1));
      drips.set(socket, text.slice(1));
    }
  }, dripMs);
  for (const behave of Object.values(behaviours)) {
    for (let index = 0; index < each; index += 1)
      for (const port of [targets.s2sPort, targets.apiPort]) come(port, behave);
  }
  return {
    connections: () => counts.connections,
    closedByService: () => counts.closed,
    stop() {
      stopped = true;
      clearInterval(timer);
      for (const socket of sockets) socket.destroy();
    },
  };
}
