import { nuid, type Msg, type NatsConnection, type Subscription } from '@nats-io/transport-node';
import { createBackoff, pause } from '../runtime/async/retry.ts';
import { startPollLoop, type PollLoop } from '../runtime/async/poll-loop.ts';
import { describeError } from '../runtime/errors.ts';
import { openConnection, type ConnectionOptions, type StreamConnection } from './connection.ts';

/**
 * What the processes of a service tell each other of what arrives, beside the stream: plain messages of NATS, which
 * nobody keeps and nobody waits for. It has a connection of its own, so that nothing of it stands before an event or
 * its acknowledgement, and a right that is missing for it is no problem of import.
 */
export interface LiveChannel {
  /** Waits until the broker is there; says what keeps this process from showing anything now. */
  findHindrance(): Promise<LiveHindrance | undefined>;
  /** Says which apps somebody listens to. */
  announce(apps: readonly number[]): void;
  /** Calls `listener` with each announcement, of whichever process; gives the function that ends that. */
  onAnnouncement(listener: (apps: readonly number[]) => void): () => void;
  /** Sends what arrived of an app to those who listen. It is dropped while the broker is away. */
  send(idApp: number, text: string): void;
  /** Calls `listener` with what arrives of an app; gives the function that ends that. */
  listen(idApp: number, listener: (text: string) => void): () => void;
  close(): Promise<void>;
}

/** The broker does not answer, or it does and brings nothing back: its user lacks the right to the subjects. */
type LiveHindrance = 'away' | 'denied';

/** An app that there is not: what is sent of it nobody shows. */
const noApp = 0;
/** Most apps of an announcement that are looked at. */
const maxApps = 1000;
const firstRetryMs = 250;
const maxRetryMs = 5000;
/** How long a listener waits for the broker, between two looks meanwhile, and for what it sends to come back. */
const readyMs = 2000;
const connectingMs = 20;
const returnMs = 2000;

/** A subject that is asked for, on this connection and on the next. */
interface Interest {
  readonly subject: string;
  readonly take: (message: Msg) => void;
  subscription?: Subscription;
}

function readApps(message: Msg): readonly number[] {
  try {
    const apps: unknown = JSON.parse(message.string());
    return Array.isArray(apps) ? apps.slice(0, maxApps).filter((app) => Number.isSafeInteger(app)) : [];
  } catch {
    return [];
  }
}

/** A connection that is made when it is first asked for, in the background, and tried for until it is closed. */
interface LazyConnection {
  current(): StreamConnection | undefined;
  start(): void;
  close(): Promise<void>;
}

function createLazyConnection(options: ConnectionOptions, onOpen: (made: StreamConnection) => void): LazyConnection {
  const retry = createBackoff(firstRetryMs, maxRetryMs);
  let connection: StreamConnection | undefined;
  let loop: PollLoop | undefined;
  let wasRefused = false;
  let isClosed = false;

  async function connect(signal: AbortSignal): Promise<void> {
    if (connection !== undefined) return;
    const made = await openConnection(options);
    if (signal.aborted) return await made.close();
    connection = made;
    onOpen(made);
  }

  function everyMs(): number {
    // Once connected it reconnects by itself.
    if (connection !== undefined) return 3_600_000;
    retry.grow();
    return retry.currentMs();
  }

  function onError(error: unknown): void {
    if (!wasRefused) options.logger.warn({ error: describeError(error) }, 'nothing is shown live, will retry');
    wasRefused = true;
  }

  return {
    current: () => connection,
    start() {
      if (!isClosed) loop ??= startPollLoop(connect, { everyMs, onError });
    },
    async close() {
      isClosed = true;
      await loop?.stop();
      await connection?.close();
    },
  };
}

function subscribe({ nats }: StreamConnection, interest: Interest): void {
  interest.subscription = nats.subscribe(interest.subject, {
    callback(error, message) {
      if (error === null) interest.take(message);
    },
  });
}

/** Says whether what is sent to a subject comes back to who listens there. The text is no announcement and no message. */
async function comesBack(nats: NatsConnection, subject: string): Promise<boolean> {
  const sign = JSON.stringify([nuid.next()]);
  let subscription: Subscription | undefined;
  let timer: NodeJS.Timeout | undefined;
  try {
    return await new Promise((resolve) => {
      timer = setTimeout(() => resolve(false), returnMs);
      subscription = nats.subscribe(subject, {
        callback(error, message) {
          if (error !== null) resolve(false);
          else if (message.string() === sign) resolve(true);
        },
      });
      nats.publish(subject, sign);
    });
  } finally {
    clearTimeout(timer);
    if (!nats.isClosed()) subscription?.unsubscribe();
  }
}

/**
 * Creates the channel of a stream's service. It connects when it is first used, and tries until it is closed: the broker
 * need not be there.
 */
export function createLiveChannel(options: ConnectionOptions & { readonly streamName: string }): LiveChannel {
  const announced = `tributary.${options.streamName}.live.wanted`;
  const subjectOf = (idApp: number): string => `tributary.${options.streamName}.live.app.${idApp}`;
  const interests = new Set<Interest>();
  const lazy = createLazyConnection(options, (made) => {
    for (const interest of interests) subscribe(made, interest);
  });

  function take(subject: string, listener: (message: Msg) => void): () => void {
    lazy.start();
    const interest: Interest = { subject, take: listener };
    interests.add(interest);
    const connection = lazy.current();
    if (connection !== undefined) subscribe(connection, interest);
    return () => {
      interests.delete(interest);
      if (lazy.current()?.nats.isClosed() === false) interest.subscription?.unsubscribe();
    };
  }

  function publish(subject: string, text: string): void {
    const connection = lazy.current();
    // The library would keep it until it is connected again.
    if (connection?.isConnected() === true) connection.nats.publish(subject, text);
  }

  return {
    async findHindrance() {
      lazy.start();
      const untilMs = performance.now() + readyMs;
      while (lazy.current() === undefined && performance.now() < untilMs) await pause(connectingMs);
      const connection = lazy.current();
      if (connection === undefined) return 'away';
      try {
        await connection.ping(readyMs);
        // Whoever shows events may be another process, but not another user of the broker.
        const back = await Promise.all([announced, subjectOf(noApp)].map((one) => comesBack(connection.nats, one)));
        return back.every(Boolean) ? undefined : connection.isConnected() ? 'denied' : 'away';
      } catch {
        return 'away';
      }
    },
    announce: (apps) => publish(announced, JSON.stringify(apps)),
    onAnnouncement: (listener) => take(announced, (message) => listener(readApps(message))),
    send: (idApp, text) => publish(subjectOf(idApp), text),
    listen: (idApp, listener) => take(subjectOf(idApp), (message) => listener(message.string())),
    close: () => lazy.close(),
  };
}
