import assert from 'node:assert/strict';
import { credsAuthenticator, type NatsConnection, type NodeConnectionOptions } from '@nats-io/transport-node';
import { getTextSync } from '../runtime/files/open-file.ts';
import { retry } from '../runtime/async/retry.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { parseNatsUrl } from '../runtime/processes/nats-url.ts';
import { wrapBrokerError, createConnectionErrors } from './broker-errors.ts';
import { createPullConnection, type PullConnection } from './pull-request.ts';
import { connect, type ConnectOptions } from './transport.ts';

export interface ConnectionOptions {
  /** `nats://[user:password@]host[:port]` or `tls://...`; comma-separated for the servers of one cluster. */
  readonly url: string;
  readonly user?: string;
  readonly password?: string;
  readonly name: string;
  readonly logger: Logger;
}

const connectTimeoutMs = 2000;
const reconnectWaitMs = 100;
/** After two pings without a response the connection is made again. */
const pingIntervalMs = 10_000;
/**
 * With several servers the client moves to another one. Of a hung server, which closes no connection, imports wait for
 * two of these pings.
 */
const clusterPingIntervalMs = 1500;

/** Splits the address into the servers, which may be shown, and the credentials, which may not. */
function parseServers(options: ConnectionOptions): { servers: string[]; signIn: NodeConnectionOptions } {
  const addresses = parseNatsUrl(options.url);
  // The settings are validated, and the supervisor's own address is well-formed.
  assert(!('problem' in addresses), 'the address of the broker is malformed');
  const { hosts, token, tls, files } = addresses;
  const { credentials, ca: caFile, cert: certFile, key: keyFile } = files;
  const user = options.user ?? addresses.user;
  const tlsFiles = Object.fromEntries(
    Object.entries({ caFile, certFile, keyFile }).filter(([, file]) => file !== undefined),
  );
  return {
    servers: [...hosts],
    signIn: {
      ...(user === undefined ? {} : { user, pass: options.password ?? addresses.password ?? '' }),
      ...(token === undefined ? {} : { token }),
      ...(credentials === undefined
        ? {}
        : { authenticator: (nonce) => credsAuthenticator(Buffer.from(getTextSync(credentials)))(nonce) }),
      ...(tls || Object.keys(tlsFiles).length > 0 ? { tls: tlsFiles } : {}),
    },
  };
}

async function connectClient(options: ConnectionOptions, more: ConnectOptions = {}): Promise<NatsConnection> {
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
      pingInterval: servers.length > 1 ? clusterPingIntervalMs : pingIntervalMs,
      noAsyncTraces: true,
      // A broker that still reads its credentials must not end the reconnecting.
      ignoreAuthErrorAbort: true,
      ...more,
    });
  } catch (error) {
    const text = `cannot connect to the broker at ${servers.join(' or ')}: ${describeError(error)}`;
    const hint = 'Check that it runs and accepts these credentials.';
    throw new AppError('broker_away', text, { cause: error, hint });
  }
}

function listen<T>(listeners: Set<T>, listener: T): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Waits for a round trip to the broker. Error: `broker_away` after `timeoutMs`. */
async function awaitPong(nats: NatsConnection, timeoutMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new AppError('broker_away', `ping: no response within ${timeoutMs} ms`)),
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

export type StreamConnection = Awaited<ReturnType<typeof openConnection>>;

/** Opens a connection to the broker, which reconnects for as long as it is open. Error: `broker_away`. */
export async function openConnection(options: ConnectionOptions) {
  const { logger } = options;
  const nats = await connectClient(options);
  const reported = createConnectionErrors(logger);
  const disconnected = new Set<() => void>();
  const failed = new Set<(error: Error) => void>();
  const pulls = new Set<PullConnection>();
  let connected = true;

  function closePulls(): void {
    for (const opened of pulls) opened.close();
    pulls.clear();
  }

  async function followStatus(): Promise<void> {
    for await (const status of nats.status()) {
      if (status.type === 'disconnect') {
        connected = false;
        logger.warn({ server: status.server }, 'broker connection lost');
        closePulls();
        for (const listener of disconnected) listener();
      } else if (status.type === 'reconnect') {
        connected = true;
        reported.clearRefusal();
        logger.info({ server: status.server }, 'broker connection restored');
      } else if (status.type === 'error') {
        reported.record(status.error);
        for (const listener of failed) listener(status.error);
      }
    }
  }
  void followStatus();

  /** False from the moment the connection is lost until it is back. */
  const isConnected = (): boolean => connected && !nats.isClosed();
  return {
    /** The client; only the files of this folder use it. */
    nats,
    isConnected,
    /** Calls `listener` when the connection is lost; returns the function that removes it. */
    onDisconnect: (listener: () => void) => listen(disconnected, listener),
    /** Calls `listener` with each error that the broker reports; returns the function that removes it. */
    onError: (listener: (error: Error) => void) => listen(failed, listener),
    /** Returns what the broker has lately denied to this connection: a permission, or its credentials. */
    refusal: reported.refusal,
    async ping(timeoutMs: number): Promise<void> {
      if (!isConnected()) throw new AppError('broker_away', 'ping: not connected to the broker');
      await awaitPong(nats, timeoutMs);
    },
    /** Opens a connection for pulls under the same name; it ends with this one. Error: `broker_away`. */
    async openPulls(): Promise<PullConnection> {
      const client = await connectClient(options, { reconnect: false, copiesMessages: true });
      const opened = createPullConnection(client, (error) => reported.record(error));
      for (const older of pulls) if (!older.isOpen()) pulls.delete(older);
      pulls.add(opened);
      if (!isConnected()) closePulls();
      return opened;
    },
    async close(): Promise<void> {
      connected = false;
      closePulls();
      await nats.close();
    },
  };
}

/** Time in which a cluster elects a leader after it has lost a server, ms. */
const electionMs = 30_000;

/** Repeats a step of a start while the broker is away or has no leader, for 30 s. Errors: those of the step. */
export function awaitLeader<T>(step: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  return retry(step, {
    forMs: electionMs,
    everyMs: 500,
    ...(signal === undefined ? {} : { signal }),
    retryable: (error) => isAppError(error, 'broker_away'),
  });
}

/** Waits for a response of the broker. Error: `broker_away`, as soon as the connection is lost. */
export async function whileConnected<T>(
  connection: StreamConnection,
  operation: string,
  request: () => Promise<T>,
): Promise<T> {
  const lose = (how: string): AppError =>
    new AppError('broker_away', `${operation}: ${how}`, { hint: 'Check that the broker runs, then retry.' });
  if (!connection.isConnected()) throw lose('not connected to the broker');
  let forget: (() => void) | undefined;
  const lost = new Promise<never>((_, reject) => {
    forget = connection.onDisconnect(() => reject(lose('the connection was lost')));
  });
  try {
    return await Promise.race([request(), lost]);
  } finally {
    forget?.();
  }
}
