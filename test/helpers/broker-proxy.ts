import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/** Faults of the bytes that the broker sends over one connection. */
export type Trouble =
  | { readonly kind: 'none' }
  /** They arrive in pieces of this size. */
  | { readonly kind: 'pieces'; readonly bytes: () => number }
  /** The connection breaks after this number of bytes. */
  | { readonly kind: 'cut'; readonly afterBytes: number }
  /** Nothing arrives after this number of bytes, and the connection stays open. */
  | { readonly kind: 'silence'; readonly afterBytes: number };

/** A network between a client and the broker. */
export interface BrokerProxy {
  readonly port: number;
  /** Returns the fault of a connection by its number from 0; none by default. */
  trouble: (turn: number) => Trouble;
  /** Returns the number of connections so far. */
  connections(): number;
  /** Returns the number of open connections. */
  open(): number;
}

/** Forwards bytes with the fault of their connection. */
function pass(trouble: Trouble, from: Socket, to: Socket): void {
  let passed = 0;
  from.on('data', (bytes: Buffer) => {
    if (trouble.kind === 'pieces')
      for (let at = 0; at < bytes.length;) {
        const length = trouble.bytes();
        to.write(bytes.subarray(at, at + length));
        at += length;
      }
    else if (trouble.kind === 'none') to.write(bytes);
    else {
      const left = Math.max(0, trouble.afterBytes - passed);
      passed += bytes.length;
      if (left > 0) to.write(bytes.subarray(0, left));
      if (bytes.length > left && trouble.kind === 'cut') to.destroySoon();
    }
  });
}

/** Starts a proxy to a port of this machine, until the test ends. */
export async function startBrokerProxy(port: number): Promise<BrokerProxy> {
  const sockets: Socket[] = [];
  let open = 0;
  let turn = 0;
  const server = createServer((client) => {
    const broker = connect(port, '127.0.0.1');
    const trouble = proxy.trouble(turn);
    turn += 1;
    open += 1;
    client.on('close', () => (open -= 1));
    for (const socket of [client, broker]) {
      sockets.push(
        socket
          .setNoDelay(true)
          .setMaxListeners(0)
          .on('error', () => undefined),
      );
      socket.on('close', () => [client, broker].forEach((other) => other.destroy()));
    }
    pass(trouble, broker, client);
    pass({ kind: 'none' }, client, broker);
  }).listen(0, '127.0.0.1');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  await once(server, 'listening');
  const proxy: BrokerProxy = {
    port: (server.address() as AddressInfo).port,
    trouble: () => ({ kind: 'none' }),
    connections: () => turn,
    open: () => open,
  };
  return proxy;
}
