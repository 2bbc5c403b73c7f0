import { createConnection, type Socket } from 'node:net';
import { NodeTransport, nodeResolveHost } from '@nats-io/transport-node/lib/node_transport.js';
import { NatsConnectionImpl, setTransportFactory } from '@nats-io/transport-node/lib/nats-base-client.js';
import type { NatsConnection, NodeConnectionOptions } from '@nats-io/transport-node';

/** Bytes of a read. Node reads 64 KiB, less than a message, and the client copies each message of two reads twice. */
const readBytes = 512 * 1024;
/** Reads fill a buffer of this size, one after the other: the parsed messages are parts of it. */
const bufferBytes = 4 * readBytes;

const ignore = (): void => undefined;

/** Keeps an error listener on a socket: the NATS client (3.4) removes all, and a late error would end the process. */
export function guardSocket<T extends Socket>(socket: T): T {
  const removeAll = socket.removeAllListeners.bind(socket);
  socket.removeAllListeners = (...names) => {
    removeAll(...names);
    return socket.on('error', ignore);
  };
  return socket.on('error', ignore);
}

/** Opens a socket whose reads are large, and emitted as `data`. */
function openSocket(port: number, host: string): Socket {
  let buffer = Buffer.alloc(0);
  const socket: Socket = createConnection({
    port,
    host,
    onread: {
      buffer() {
        if (buffer.length < readBytes) buffer = Buffer.allocUnsafeSlow(bufferBytes);
        return buffer.subarray(0, readBytes);
      },
      callback(bytes) {
        const read = buffer.subarray(0, bytes);
        buffer = buffer.subarray(bytes);
        return socket.emit('data', read);
      },
    },
  });
  return socket.setNoDelay(true);
}

class StreamTransport extends NodeTransport {
  override dial({ hostname, port }: { readonly hostname: string; readonly port: number }): Promise<Socket> {
    return new Promise((resolve, reject) => {
      const socket = guardSocket(openSocket(port, hostname));
      socket.once('error', reject);
      socket.once('close', () => reject(new Error('the connection was closed')));
      socket.once('connect', () => {
        socket.removeAllListeners();
        resolve(socket);
      });
    });
  }

  override async startTLS() {
    return guardSocket(await super.startTLS());
  }
}

/** Connects to the broker. Errors: those of the client. */
export function connect(options: NodeConnectionOptions): Promise<NatsConnection> {
  setTransportFactory({ factory: () => new StreamTransport(), dnsResolveFn: nodeResolveHost });
  return NatsConnectionImpl.connect(options);
}
