import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/** What happens to the bytes that the broker sends over one connection. */
export type Trouble =
  | { readonly kind: 'none' }
  /** They come in pieces of so many. */
  | { readonly kind: 'pieces'; readonly bytes: () => number }
  /** The connection breaks once so many have come through. */
  | { readonly kind: 'cut'; readonly afterBytes: number }
  /** No more come through after so many, and the connection stays. */
  | { readonly kind: 'silence'; readonly afterBytes: number };

/** A network between a client and the broker. */
export interface BrokerProxy {
  readonly port: number;
  /** What happens to connections, by their turn from 0 on; none unless it says so. */
  trouble: (turn: number) => Trouble;
  /** How many connections there have been. */
  connections(): number;
  /** How many there are. */
  open(): number;
}

/** Hands bytes on, with the trouble of their connection. */
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
