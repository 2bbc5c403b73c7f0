import assert from 'node:assert/strict';
import { connect, errors, type NatsConnection, type NodeConnectionOptions } from '@nats-io/transport-node';
import { AppError, describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { parseServerAddresses } from '../runtime/processes/server-addresses.ts';
import { findRefusal, wrapBrokerError } from './broker-errors.ts';
import { guardClientSockets, guardConnectionSocket } from './socket-guard.ts';

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

/** Something that the broker refuses, in its own words, and what its operator can do. */
export interface Refusal {
  readonly words: string;
  readonly todo: string;
}

/** A connection that renews itself for as long as it is open. Only the files of this folder use `nats`. */
export interface StreamConnection {
  readonly nats: NatsConnection;
  /** False from the moment the connection is lost until it is back. */
  isConnected(): boolean;
  /** Calls `listener` each time the connection is lost; gives the function that takes it off again. */
  onDisconnect(listener: () => void): () => void;
  /**
   * What the broker has lately refused to this connection, a right that it lacks or its credentials, in the broker's
   * own words.
   */
  refusal(): Refusal | undefined;
  /** Round trip to the broker; throws `broker_away` when it does not answer in time. */
  ping(timeoutMs: number): Promise<void>;
  close(): Promise<void>;
}

const connectTimeoutMs = 2000;
const reconnectWaitMs = 100;
/** A broker that answers no ping for two intervals is taken for gone, and the connection is made anew. */
const pingIntervalMs = 10_000;
/**
 * How long a refusal is told after it was last seen, milliseconds: whatever the service may not do, it tries more often
 * than that.
 */
const refusalHoldsMs = 15_000;
/** Wordings of errors remembered for the log; a few among all that a broker has. */
const rememberedErrors = 100;

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

/** Connects to the broker; `broker_away` when it is not there now. Once connected it reconnects for ever. */
export async function openConnection(options: ConnectionOptions): Promise<StreamConnection> {
  const { logger } = options;
  const { servers, signIn } = parseServers(options);
  guardClientSockets();
  let nats: NatsConnection;
  try {
    nats = await connect({
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

  guardConnectionSocket(nats);
  let connected = true;
  let refused: { readonly refusal: Refusal; readonly atMs: number } | undefined;
  const listeners = new Set<() => void>();
  /** When each error was last seen, by its words. One that comes again and again is logged when it begins. */
  const lastSeenMs = new Map<string, number>();
  function isNew(error: Error): boolean {
    // Each try for an answer has an inbox of its own.
    const words = error.message.replace(/(_INBOX\.).*/, '$1>');
    const nowMs = performance.now();
    const beforeMs = lastSeenMs.get(words);
    if (beforeMs === undefined && lastSeenMs.size >= rememberedErrors) lastSeenMs.clear();
    lastSeenMs.set(words, nowMs);
    return beforeMs === undefined || nowMs - beforeMs >= refusalHoldsMs;
  }

  function findFreshRefusal(): Refusal | undefined {
    return refused !== undefined && performance.now() - refused.atMs < refusalHoldsMs ? refused.refusal : undefined;
  }

  function noteError(error: Error): void {
    const refusal = findRefusal(error);
    // What may not be subscribed to fails where it is needed, and is done without where it is not.
    const isSubscription = error instanceof errors.PermissionViolationError && error.operation === 'subscription';
    if (refusal !== undefined && !isSubscription) refused = { refusal, atMs: performance.now() };
    logger[isNew(error) ? 'warn' : 'debug']({ error: error.message }, 'broker reported an error');
  }

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
          guardConnectionSocket(nats);
          refused = undefined;
          logger.info({ server: status.server }, 'broker connection is back');
          break;
        case 'error':
          noteError(status.error);
          break;
        default:
          break;
      }
    }
  }
  void watch();

  const isConnected = (): boolean => connected && !nats.isClosed();

  async function ping(timeoutMs: number): Promise<void> {
    if (!isConnected()) throw new AppError('broker_away', 'ping: not connected to the broker');
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () => reject(new AppError('broker_away', `ping: no answer within ${timeoutMs} ms`)),
        timeoutMs,
      );
    });
    try {
      await Promise.race([nats.flush(), late]);
    } catch (error) {
      throw wrapBrokerError(error, 'ping');
    } finally {
      clearTimeout(timer);
    }
  }

  return {
    nats,
    isConnected,
    refusal: findFreshRefusal,
    ping,
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
