import { connect, type NatsConnection, type NodeConnectionOptions } from '@nats-io/transport-node';
import { AppError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';

/** Where the broker is and who we are to it. */
export interface ConnectionOptions {
  /** `nats://host:port` or `tls://host:port`; user and password may stand in it (`nats://user:pass@host`). */
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
  close(): Promise<void>;
}

const connectTimeoutMs = 2000;
const reconnectWaitMs = 100;
/** A broker that answers no ping for two intervals is taken for gone, and the connection is made anew. */
const pingIntervalMs = 10_000;

function parseServer(options: ConnectionOptions): NodeConnectionOptions {
  const url = new URL(options.url);
  const user = options.user ?? decodeURIComponent(url.username);
  return {
    servers: url.host,
    ...(user === '' ? {} : { user, pass: options.password ?? decodeURIComponent(url.password) }),
    ...(url.protocol === 'tls:' ? { tls: {} } : {}),
  };
}

/** Connects to the broker; `broker_away` when it is not there now. Once connected it reconnects for ever. */
export async function openConnection(options: ConnectionOptions): Promise<StreamConnection> {
  const { logger } = options;
  let nats: NatsConnection;
  try {
    nats = await connect({
      ...parseServer(options),
      name: options.name,
      timeout: connectTimeoutMs,
      maxReconnectAttempts: -1,
      reconnectTimeWait: reconnectWaitMs,
      reconnectJitter: reconnectWaitMs,
      pingInterval: pingIntervalMs,
      noAsyncTraces: true,
      // A broker that is still reading its credentials must not end the reconnecting.
      ignoreAuthErrorAbort: true,
    });
  } catch (error) {
    throw new AppError('broker_away', `cannot connect to the broker at ${new URL(options.url).host}`, { cause: error });
  }

  let connected = true;
  const listeners = new Set<() => void>();
  async function watch(): Promise<void> {
    for await (const status of nats.status()) {
      switch (status.type) {
        case 'disconnect':
          connected = false;
          logger.warn({ server: status.server }, 'broker connection lost');
          for (const listener of listeners) listener();
          break;
        case 'reconnect':
          connected = true;
          logger.info({ server: status.server }, 'broker connection is back');
          break;
        case 'error':
          logger.warn({ error: status.error.message }, 'broker reported an error');
          break;
        default:
          break;
      }
    }
  }
  void watch();

  return {
    nats,
    isConnected: () => connected && !nats.isClosed(),
    onDisconnect(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    async close() {
      connected = false;
      await nats.close();
    },
  };
}
