import {
  AckPolicy,
  DeliverPolicy,
  jetstream,
  JetStreamError,
  type Consumer,
  type ConsumerMessages,
  type JetStreamManager,
} from '@nats-io/jetstream';
import { nanos } from '@nats-io/transport-node';
import { AppError } from '../runtime/errors.ts';
import type { StreamConnection } from './connection.ts';
import type { StreamMessage } from './stream.ts';

const minFetchMs = 1000;
/** The server forgets a consumer that nobody pulls from for so long; it is then created again. */
const consumerIdleMs = 300_000;

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
async function readFetch(
  fetch: ConsumerMessages,
  waitMs: number,
  signal: AbortSignal | undefined,
  onArrival: () => void,
): Promise<Fetched> {
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
    for await (const message of fetch) {
      onArrival();
      messages.push({ sequence: message.seq, payload: message.data });
    }
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

/** A place in the stream from which messages are fetched one batch after the other. */
export interface StreamCursor {
  /**
   * Fetches once from `sequence`, at most `maxBytes`, for at most `waitMs` or until the signal aborts. Throws
   * `stream_gap` unless what comes is contiguous.
   */
  fetch(sequence: number, maxBytes: number, waitMs: number, signal: AbortSignal | undefined): Promise<StreamMessage[]>;
  close(): Promise<void>;
}

/**
 * Creates a cursor: it keeps one ephemeral consumer without acks, and knows the sequence it delivers next. The broker's
 * own memory of a position is not trusted: when the caller asks for another position, or a fetch was cut off, a new
 * consumer is made. `onArrival` is called with each message as it comes, and when a fetch was cut off.
 */
export function createCursor(
  connection: StreamConnection,
  manager: JetStreamManager,
  streamName: string,
  onArrival: () => void,
): StreamCursor {
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
    onArrival();
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
    async fetch(sequence, maxBytes, waitMs, signal) {
      const from = await moveTo(sequence);
      // Whole milliseconds: the library derives a heartbeat in nanoseconds from it, and the server refuses one with a
      // fraction.
      const expires = Math.ceil(Math.max(waitMs, minFetchMs));
      // Past its own expiry the fetch is cut off only when the broker stays silent.
      const { messages, clean } = await readFetch(
        await from.fetch({ max_bytes: maxBytes, expires }),
        waitMs < minFetchMs ? waitMs : waitMs + 500,
        signal,
        onArrival,
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
