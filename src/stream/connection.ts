import assert from 'node:assert/strict';
import { connect, type NatsConnection, type NodeConnectionOptions } from '@nats-io/transport-node';
import { AppError, describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { parseServerAddresses } from '../runtime/processes/server-addresses.ts';
import { wrapBrokerError, type Refusal, createConnectionErrors, type ConnectionErrors } from './broker-errors.ts';
import { createPullConnection, type PullConnection } from './pull-request.ts';
import { subscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';

const guarded = new WeakSet<Socket>();
const ignore = (): void => undefined;

/**
 * Keeps a listener for errors on a socket whatever is taken off it. The NATS client (3.4) takes every listener off a
 * socket that was closed; an error that was on its way, such as that of a write after the server's end, then has none,
 * and ends the process.
 */
function guardSocket(socket: Socket): void {
  if (guarded.has(socket)) return;
  guarded.add(socket);
  const removeAll = socket.removeAllListeners.bind(socket);
  socket.removeAllListeners = (...names) => {
    removeAll(...names);
    return socket.on('error', ignore);
  };
}

let guarding = false;

/** Guards each socket that this process opens from now on: those of the NATS client, before it can lose one. */
export function guardClientSockets(): void {
  if (guarding) return;
  guarding = true;
  subscribe('net.client.socket', (message) => guardSocket((message as { socket: Socket }).socket));
}

/** Guards the socket that a connection uses now: over TLS it is not one that was opened. */
function guardConnectionSocket(nats: object): void {
  // Not in the client's types; without it, only the sockets that were opened are guarded.
  const { socket } = (nats as { protocol?: { transport?: { socket?: Socket } } }).protocol?.transport ?? {};
  if (socket !== undefined) guardSocket(socket);
}

/** Where the broker is and who we are to it. */
export interface ConnectionOptions {
  /**
   * `nats://[user:password@]host[:port]` or `tls://...`; several with commas between are the servers of one cluster.
   */
  readonly url: string;
  readonly user?: string;
  readonly password?: string;
  /** Shown in the broker's own list of connections. */
  readonly name: string;
  readonly logger: Logger;
}

/** A connection that renews itself for as long as it is open. Only the files of this folder use `nats`. */
export interface StreamConnection {
  readonly nats: NatsConnection;
  /** False from the moment the connection is lost until it is back. */
  isConnected(): boolean;
  /** Calls `listener` each time the connection is lost; gives the function that takes it off again. */
  onDisconnect(listener: () => void): () => void;
  /** Calls `listener` with each error that the broker reports; gives the function that takes it off again. */
  onError(listener: (error: Error) => void): () => void;
  /**
   * What the broker has lately refused to this connection, a right that it lacks or its credentials, in the broker's
   * own words.
   */
  refusal(): Refusal | undefined;
  /** Round trip to the broker; throws `broker_away` when it does not answer in time. */
  ping(timeoutMs: number): Promise<void>;
  /**
   * Opens a connection for pulls under the same name. It is closed with this one, and when this one is lost. Error:
   * `broker_away`.
   */
  openPulls(): Promise<PullConnection>;
  close(): Promise<void>;
}

const connectTimeoutMs = 2000;
const reconnectWaitMs = 100;
/** A broker that answers no ping for two intervals counts as gone, and the connection is made anew. */
const pingIntervalMs = 10_000;

/** Splits the address into the servers, which may be shown, and the credentials, which may not. */
function parseServers(options: ConnectionOptions): { servers: string[]; signIn: NodeConnectionOptions } {
  const addresses = parseServerAddresses(options.url);
  // The settings were validated, and the supervisor's own address is well-formed.
  assert(!('problem' in addresses), 'the address of the broker is malformed');
  const user = options.user ?? addresses.user;
  return {
    servers: [...addresses.hosts],
    signIn: {
      ...(user === undefined ? {} : { user, pass: options.password ?? addresses.password ?? '' }),
      ...(addresses.token === undefined ? {} : { token: addresses.token }),
      ...(addresses.tls ? { tls: {} } : {}),
    },
  };
}

/** Connects the client of the NATS library. Error: `broker_away`. */
async function connectClient(options: ConnectionOptions, more: NodeConnectionOptions = {}): Promise<NatsConnection> {
  const { servers, signIn } = parseServers(options);
  try {
    return await connect({
      ...signIn,
      servers,
      name: options.name,
      timeout: connectTimeoutMs,
      maxReconnectAttempts: -1,
      reconnectTimeWait: reconnectWaitMs,
      reconnectJitter: reconnectWaitMs,
      pingInterval: pingIntervalMs,
      noAsyncTraces: true,
      // A broker that is still reading its credentials must not end the reconnecting.
      ignoreAuthErrorAbort: true,
      ...more,
    });
  } catch (error) {
    throw new AppError(
      'broker_away',
      `cannot connect to the broker at ${servers.join(' or ')}: ${describeError(error)}`,
      {
        cause: error,
        hint: 'See whether it runs and takes these credentials.',
      },
    );
  }
}

/** Whether a connection is up, from the status that the library reports of it. */
interface ConnectionStatus extends Pick<StreamConnection, 'isConnected' | 'onDisconnect' | 'onError'> {
  /** The connection is being closed: from now on it counts as lost. */
  end(): void;
}

/** Follows the status of a connection that is up, to its end. */
function followStatus(nats: NatsConnection, reported: ConnectionErrors, logger: Logger): ConnectionStatus {
  let connected = true;
  const listeners = new Set<() => void>();
  const errorListeners = new Set<(error: Error) => void>();

  async function follow(): Promise<void> {
    for await (const status of nats.status()) {
      switch (status.type) {
        case 'disconnect':
          connected = false;
          logger.warn({ server: status.server }, 'broker connection lost');
          for (const listener of listeners) listener();
          break;
        case 'reconnect':
          connected = true;
          guardConnectionSocket(nats);
          reported.clearRefusal();
          logger.info({ server: status.server }, 'broker connection is back');
          break;
        case 'error':
          reported.record(status.error);
          for (const listener of errorListeners) listener(status.error);
          break;
        default:
          break;
      }
    }
  }
  void follow();

  return {
    isConnected: () => connected && !nats.isClosed(),
    onDisconnect(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    onError(listener) {
      errorListeners.add(listener);
      return () => void errorListeners.delete(listener);
    },
    end() {
      connected = false;
    },
  };
}

/** Waits for a round trip to the broker; `broker_away` when it takes longer than `timeoutMs`. */
async function awaitPong(nats: NatsConnection, timeoutMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new AppError('broker_away', `ping: no answer within ${timeoutMs} ms`)), timeoutMs);
  });
  try {
    await Promise.race([nats.flush(), late]);
  } catch (error) {
    throw wrapBrokerError(error, 'ping');
  } finally {
    clearTimeout(timer);
  }
}

/** Connects to the broker; `broker_away` when it is not there now. Once connected it reconnects for ever. */
export async function openConnection(options: ConnectionOptions): Promise<StreamConnection> {
  guardClientSockets();
  const nats = await connectClient(options);
  guardConnectionSocket(nats);
  const reported = createConnectionErrors(options.logger);
  const status = followStatus(nats, reported, options.logger);
  const pulls = new Set<PullConnection>();
  const closePulls = (): void => {
    for (const opened of pulls) opened.close();
    pulls.clear();
  };
  status.onDisconnect(closePulls);
  return {
    nats,
    isConnected: () => status.isConnected(),
    onDisconnect: (listener) => status.onDisconnect(listener),
    onError: (listener) => status.onError(listener),
    refusal: () => reported.refusal(),
    async ping(timeoutMs) {
      if (!status.isConnected()) throw new AppError('broker_away', 'ping: not connected to the broker');
      await awaitPong(nats, timeoutMs);
    },
    async openPulls() {
      const client = await connectClient(options, { reconnect: false });
      const opened = createPullConnection(client, (error) => reported.record(error));
      for (const older of pulls) if (!older.isOpen()) pulls.delete(older);
      pulls.add(opened);
      if (!status.isConnected()) closePulls();
      return opened;
    },
    async close() {
      status.end();
      closePulls();
      await nats.close();
    },
  };
}

/**
 * Waits for an answer of the broker, and throws `broker_away` as soon as the connection is lost: the library would wait
 * for its timeout.
 */
export async function whileConnected<T>(
  connection: StreamConnection,
  doing: string,
  answer: () => Promise<T>,
): Promise<T> {
  if (!connection.isConnected())
    throw new AppError('broker_away', `${doing}: not connected to the broker`, {
      hint: 'See whether the broker runs, and try again.',
    });
  let forget: (() => void) | undefined;
  const lost = new Promise<never>((_, reject) => {
    forget = connection.onDisconnect(() =>
      reject(
        new AppError('broker_away', `${doing}: the connection was lost`, {
          hint: 'See whether the broker runs, and try again.',
        }),
      ),
    );
  });
  try {
    return await Promise.race([answer(), lost]);
  } finally {
    forget?.();
  }
}
