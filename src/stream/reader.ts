import {
  AckPolicy,
  DeliverPolicy,
  jetstream,
  jetstreamManager,
  JetStreamError,
  type Consumer,
  type ConsumerMessages,
  type JetStreamManager,
} from '@nats-io/jetstream';
import { nanos } from '@nats-io/transport-node';
import { AppError } from '../runtime/errors.ts';
import { wrapBrokerError } from './broker-errors.ts';
import type { StreamConnection } from './connection.ts';
import { noGuard, type StreamGuard } from './guard.ts';
import { maxMessageBytes, streamName as unclaimedName, type StreamMessage, type StreamReader } from './stream.ts';

/**
 * Most bytes asked for at once. The server cuts a client off as too slow at 64 MB waiting to be sent; a pull by number
 * of messages can pass that, one by bytes cannot.
 */
const maxFetchBytes = 16 * 1024 * 1024;
/** A fetch must have room for one message of the largest size, with its subject, reply and headers. */
const minFetchBytes = maxMessageBytes + 16 * 1024;
const minFetchMs = 1000;
/** The server forgets a consumer that nobody pulls from for so long; it is then created again. */
const consumerIdleMs = 300_000;

type PullLimits = Parameters<StreamReader['pull']>[1];

/** What one fetch brought. `clean` says that nothing can have been delivered and missed. */
interface Fetched {
  readonly messages: StreamMessage[];
  readonly clean: boolean;
}

const badRequest = 400;

/** The library ends a fetch that reached its bytes or messages with this error: a normal end. */
function isEndOfBatch(error: unknown): boolean {
  return (
    error instanceof JetStreamError &&
    'code' in error &&
    error.code === 409 &&
    /batch completed|exceeds maxbytes/i.test(error.message)
  );
}

/** Reads a fetch to its end: bytes or messages reached, its time over, or cut off by `waitMs` or the signal. */
async function readFetch(fetch: ConsumerMessages, waitMs: number, signal: AbortSignal | undefined): Promise<Fetched> {
  const messages: StreamMessage[] = [];
  let clean = true;
  const cut = (): void => {
    clean = false;
    void fetch.close();
  };
  const timer = setTimeout(cut, waitMs);
  signal?.addEventListener('abort', cut, { once: true });
  if (signal?.aborted === true) cut();
  try {
    for await (const message of fetch) messages.push({ sequence: message.seq, payload: message.data });
    return { messages, clean };
  } catch (error) {
    // Refused as malformed: asking again would only be refused again, without end and without a sign.
    if (error instanceof JetStreamError && 'code' in error && error.code === badRequest) throw error;
    // Whatever ended it (the consumer is gone, the broker restarted), what came before is good.
    return { messages, clean: isEndOfBatch(error) };
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', cut);
  }
}

async function forget(consumer: Consumer | undefined): Promise<void> {
  // One that the broker has forgotten is deleted already.
  await consumer?.delete().catch(() => undefined);
}

/**
 * Keeps one ephemeral consumer without acks, and knows the sequence it delivers next. The broker's own memory of a
 * position is not trusted: when the caller asks for another position, or a fetch was cut off, a new consumer is made.
 */
function createCursor(connection: StreamConnection, manager: JetStreamManager, streamName: string) {
  const js = jetstream(connection.nats);
  let consumer: Consumer | undefined;
  /** No longer read from; deleted when the next is there, so that the stream never is without one: see `drop`. */
  let stale: Consumer | undefined;
  let nextSequence = 0;

  /**
   * Reads no longer from the consumer. It stays for now: were the stream's retention changed to `interest`, only
   * messages that a consumer waits for would be kept.
   */
  async function drop(): Promise<void> {
    const older = stale;
    if (consumer === undefined) return;
    stale = consumer;
    consumer = undefined;
    await forget(older);
  }

  async function close(): Promise<void> {
    await drop();
    await forget(stale);
    stale = undefined;
  }

  async function moveTo(sequence: number): Promise<Consumer> {
    if (consumer !== undefined && nextSequence === sequence) return consumer;
    await drop();
    const info = await manager.consumers.add(streamName, {
      ack_policy: AckPolicy.None,
      deliver_policy: DeliverPolicy.StartSequence,
      opt_start_seq: sequence,
      inactive_threshold: nanos(consumerIdleMs),
      mem_storage: true,
      num_replicas: 1,
    });
    nextSequence = sequence;
    consumer = js.consumers.getConsumerFromInfo(info);
    await forget(stale);
    stale = undefined;
    return consumer;
  }

  return {
    close,
    /** Fetches once from `sequence`; asserts that what comes is contiguous. */
    async fetch(
      sequence: number,
      maxBytes: number,
      waitMs: number,
      signal: AbortSignal | undefined,
    ): Promise<StreamMessage[]> {
      const from = await moveTo(sequence);
      // Whole milliseconds: the library derives a heartbeat in nanoseconds from it, and the server refuses one with a
      // fraction.
      const expires = Math.ceil(Math.max(waitMs, minFetchMs));
      // Past its own expiry the fetch is cut off only when the broker stays silent.
      const { messages, clean } = await readFetch(
        await from.fetch({ max_bytes: maxBytes, expires }),
        waitMs < minFetchMs ? waitMs : waitMs + 500,
        signal,
      );
      for (const message of messages) {
        if (message.sequence !== nextSequence) {
          await drop();
          throw new AppError(
            'stream_gap',
            `the stream has message ${message.sequence} where ${nextSequence} should be`,
            {
              hint: 'Messages were removed from the stream before the lake had them.',
            },
          );
        }
        nextSequence += 1;
      }
      if (!clean) await drop();
      return messages;
    },
  };
}

/** Runs work whose errors leave the stream's edge as the service's own. */
async function edge<T>(doing: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw wrapBrokerError(error, doing);
  }
}

export interface ReaderOptions {
  /** Default: that of a stream that no service has claimed. */
  readonly streamName?: string;
  /** Asked whose the stream is at each look at its state; whoever only looks needs none. */
  readonly guard?: StreamGuard;
}

/**
 * Opens the stream for reading over a connection, which stays the caller's to close. `broker_away` when it does not
 * answer.
 */
export async function openReader(
  connection: StreamConnection,
  { streamName = unclaimedName, guard = noGuard }: ReaderOptions = {},
): Promise<StreamReader> {
  const manager = await jetstreamManager(connection.nats).catch((error: unknown) => {
    throw wrapBrokerError(error, 'open the stream');
  });
  const cursor = createCursor(connection, manager, streamName);

  async function pull(afterSequence: number, limits: PullLimits): Promise<StreamMessage[]> {
    const deadline = performance.now() + limits.waitMs;
    const pulled: StreamMessage[] = [];
    let bytes = 0;
    for (;;) {
      const leftMs = deadline - performance.now();
      const leftBytes = limits.maxBytes - bytes;
      const enough = leftMs <= 0 || (leftBytes < minFetchBytes && pulled.length > 0);
      if (enough || limits.signal?.aborted === true) return pulled;
      const messages = await cursor.fetch(
        afterSequence + pulled.length + 1,
        Math.max(Math.min(leftBytes, maxFetchBytes), minFetchBytes),
        leftMs,
        limits.signal,
      );
      for (const message of messages) {
        pulled.push(message);
        bytes += message.payload.length;
      }
      // Nothing and not connected: the caller decides whether to try again.
      if (messages.length === 0 && !connection.isConnected()) return pulled;
    }
  }

  return {
    state: () =>
      edge('read the state of the stream', async () => {
        const info = await manager.streams.info(streamName);
        await guard.assertOwner(info);
        const { created, state } = info;
        return {
          id: `${streamName}@${created}`,
          firstSequence: state.first_seq,
          lastSequence: state.last_seq,
          messages: state.messages,
          bytes: state.bytes,
        };
      }),
    assertOwner: () =>
      edge('see whose the stream is', async () => guard.assertOwner(await manager.streams.info(streamName))),
    findMessage: (sequence) =>
      edge('read a message', async () => {
        const message = await manager.streams.getMessage(streamName, { seq: sequence });
        return message === null ? undefined : { sequence: message.seq, payload: message.data };
      }),
    pull: (afterSequence, limits) => edge('pull from the stream', () => pull(afterSequence, limits)),
    purgeBelow: (sequence) =>
      edge('purge the stream', async () => {
        await manager.streams.purge(streamName, { seq: sequence });
      }),
    close: () => cursor.close(),
  };
}
