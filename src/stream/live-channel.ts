import { nuid, type Msg, type NatsConnection, type Subscription } from '@nats-io/transport-node';
import { createBackoff, pause } from '../runtime/async/retry.ts';
import { startPollLoop, type PollLoop } from '../runtime/async/poll-loop.ts';
import { describeError } from '../runtime/errors.ts';
import { openConnection, type ConnectionOptions, type StreamConnection } from './connection.ts';

/** An id that no app has: messages of it are not shown. */
const noApp = 0;
const maxApps = 1000;
const firstRetryMs = 250;
const maxRetryMs = 5000;
/** Timeout of the broker, delay between two checks, and timeout of a listener's own message, ms. */
const readyMs = 2000;
const connectingMs = 20;
const returnMs = 2000;

/** A subject that is subscribed to, on this connection and on the next. */
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

/** Creates a connection that opens in the background at the first use, and retries until it is closed. */
function createLazyConnection(options: ConnectionOptions, onOpen: (connection: StreamConnection) => void) {
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
    // A connection reconnects on its own.
    if (connection !== undefined) return 3_600_000;
    retry.grow();
    return retry.currentMs();
  }

  function onError(error: unknown): void {
    if (!wasRefused) options.logger.warn({ error: describeError(error) }, 'cannot open the live channel, will retry');
    wasRefused = true;
  }

  return {
    current: (): StreamConnection | undefined => connection,
    start(): void {
      if (!isClosed) loop ??= startPollLoop(connect, { everyMs, onError });
    },
    async close(): Promise<void> {
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

/** Reports whether a message to a subject returns. Its text is neither an announcement nor a message of an app. */
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

export type LiveChannel = ReturnType<typeof createLiveChannel>;

/**
 * Creates the channel on which processes show each other arriving events: NATS messages that are not stored. It has its
 * own connection, so that it delays no import; a missing permission for it is no problem of import.
 */
export function createLiveChannel(options: ConnectionOptions & { readonly streamName: string }) {
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
    if (connection?.isConnected() === true) connection.nats.publish(subject, text);
  }

  return {
    /** Waits for the broker; returns why nothing can be shown. `denied`: its user lacks permission for the subjects. */
    async findHindrance(): Promise<'away' | 'denied' | undefined> {
      lazy.start();
      const untilMs = performance.now() + readyMs;
      while (lazy.current() === undefined && performance.now() < untilMs) await pause(connectingMs);
      const connection = lazy.current();
      if (connection === undefined) return 'away';
      try {
        await connection.ping(readyMs);
        const back = await Promise.all([announced, subjectOf(noApp)].map((one) => comesBack(connection.nats, one)));
        return back.every(Boolean) ? undefined : connection.isConnected() ? 'denied' : 'away';
      } catch {
        return 'away';
      }
    },
    /** Announces the apps that this process has listeners of. */
    announce: (apps: readonly number[]): void => publish(announced, JSON.stringify(apps)),
    /** Calls `listener` with the announcements of all processes; returns the function that ends that. */
    onAnnouncement: (listener: (apps: readonly number[]) => void) =>
      take(announced, (message) => listener(readApps(message))),
    /** Sends what arrived of an app to its listeners; dropped while the broker is away. */
    send: (idApp: number, text: string): void => publish(subjectOf(idApp), text),
    /** Calls `listener` with what arrives of an app; returns the function that ends that. */
    listen: (idApp: number, listener: (text: string) => void) =>
      take(subjectOf(idApp), (message) => listener(message.string())),
    close: () => lazy.close(),
  };
}
