import { createConnection, type Socket } from 'node:net';
import { NodeTransport, nodeResolveHost } from '@nats-io/transport-node/lib/node_transport.js';
import { NatsConnectionImpl, setTransportFactory } from '@nats-io/transport-node/lib/nats-base-client.js';
import type { NatsConnection, NodeConnectionOptions } from '@nats-io/transport-node';

/** Bytes of a read: Node reads 64 KiB, less than a message. */
const readBytes = 512 * 1024;
/** Reads fill a buffer of this size, one after the other: the parsed messages are parts of it. */
const bufferBytes = 4 * readBytes;
const lineFeed = 0x0a;

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

/** Returns the size of the NATS message or other line that bytes begin with; undefined if its first line is incomplete. */
function findSize(bytes: Buffer): number | undefined {
  const end = bytes.indexOf(lineFeed);
  if (end === -1) return undefined;
  const [size] = /^H?MSG /i.test(bytes.toString('latin1', 0, 5))
    ? (/\d+(?=\r$)/.exec(bytes.toString('latin1', 0, end)) ?? [])
    : [];
  return end + 1 + (size === undefined ? 0 : Number(size) + '\r\n'.length);
}

/**
 * Creates the buffers of a socket's reads, for `emit`. Messages are emitted whole: of each one that it gets in parts, the
 * NATS client (3.4) allocates three times its size. Larger messages than fit are emitted in parts. With `reused`, a full
 * buffer is filled again once `release` was called with its last bytes: a new one for every 2 MiB would cost a garbage
 * collection every two seconds under load.
 */
export function createReadBuffers(emit: (bytes: Buffer) => boolean, reused: boolean) {
  let buffer: Buffer = Buffer.alloc(0);
  /** Offsets: of what was not emitted yet, of the space for the next read, and of the next message. */
  let [held, filled, next] = [0, 0, 0];
  /** The last bytes that were emitted, until the client has parsed them. */
  let emitted: Buffer | undefined;
  /** Whether the client keeps a part of the buffer, of a message that was emitted in parts. */
  let isKept = false;
  let full: { readonly buffer: Buffer; readonly emitted: Buffer | undefined } | undefined;
  let free: Buffer | undefined;

  function freeFull(released: Buffer | undefined): void {
    if (full === undefined || full.emitted !== released) return;
    free = full.buffer;
    full = undefined;
  }

  return {
    /** Returns the space for the next read. */
    space(): Buffer {
      if (buffer.length - filled < readBytes) {
        const target = free ?? Buffer.allocUnsafeSlow(bufferBytes);
        buffer.copy(target, 0, held, filled);
        full = reused && !isKept && buffer.length > 0 ? { buffer, emitted } : undefined;
        [buffer, held, filled, next, free, isKept] = [target, 0, filled - held, next - held, undefined, false];
        freeFull(undefined);
      }
      return buffer.subarray(filled, filled + readBytes);
    },
    /** Emits the whole messages, after a read into the space. Returns false to stop reading. */
    add(bytes: number): boolean {
      filled += bytes;
      let whole = held;
      while (next <= filled) {
        whole = next;
        const size = findSize(buffer.subarray(next, filled));
        if (size === undefined) break;
        next += size;
      }
      if (filled - whole > bufferBytes - readBytes) {
        whole = filled;
        isKept = true;
      }
      if (whole === held) return true;
      emitted = buffer.subarray(held, whole);
      held = whole;
      return emit(emitted);
    },
    /** Notes that the client has parsed emitted bytes, and all before them. */
    release(bytes: Uint8Array): void {
      if (bytes === emitted) emitted = undefined;
      if (bytes === full?.emitted) freeFull(full.emitted);
    },
  };
}

/** Opens a socket whose reads are large, and emitted as `data`. */
function openSocket(port: number, host: string, reused: boolean) {
  const buffers = createReadBuffers((bytes) => socket.emit('data', bytes), reused);
  const socket: Socket = createConnection({
    port,
    host,
    onread: { buffer: () => buffers.space(), callback: (bytes) => buffers.add(bytes) },
  });
  return { socket: socket.setNoDelay(true), buffers };
}

class StreamTransport extends NodeTransport {
  #buffers: ReturnType<typeof createReadBuffers> | undefined;

  override dial({ hostname, port }: { readonly hostname: string; readonly port: number }): Promise<Socket> {
    const reused = 'copiesMessages' in this.options && this.options.copiesMessages === true;
    return new Promise((resolve, reject) => {
      const { socket: opened, buffers } = openSocket(port, hostname, reused);
      this.#buffers = buffers;
      const socket = guardSocket(opened);
      socket.once('error', reject);
      socket.once('close', () => reject(new Error('the connection was closed')));
      socket.once('connect', () => {
        socket.removeAllListeners();
        resolve(socket);
      });
    });
  }

  override async *iterate(): AsyncIterableIterator<Uint8Array> {
    for await (const bytes of super.iterate()) {
      yield bytes;
      // The client has asked for more: it has parsed these, and called the subscriptions of their messages.
      this.#buffers?.release(bytes);
    }
  }

  override async startTLS() {
    return guardSocket(await super.startTLS());
  }
}

/** Options of the client; `copiesMessages` if every subscription copies what it keeps of a message before it returns. */
export interface ConnectOptions extends NodeConnectionOptions {
  readonly copiesMessages?: boolean;
}

/** Connects to the broker. Errors: those of the client. */
export function connect(options: ConnectOptions): Promise<NatsConnection> {
  setTransportFactory({ factory: () => new StreamTransport(), dnsResolveFn: nodeResolveHost });
  return NatsConnectionImpl.connect(options);
}
